"""One run: clients at work, a fault in the middle, a history of what was asked and what came back."""
