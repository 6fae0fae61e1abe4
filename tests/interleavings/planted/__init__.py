"""Stores that are wrong when several callers use them at once, each beside one that is right."""
