"""From a saved history to a verdict: pure, and importing nothing else of the kit."""
