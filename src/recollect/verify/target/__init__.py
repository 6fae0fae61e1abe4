"""The store under test, in processes of its own that can be killed at any moment."""
