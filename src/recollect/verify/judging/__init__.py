"""From a saved history to a verdict: pure, and imports nothing else from the kit."""
