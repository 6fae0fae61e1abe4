"""Attacks on recollect itself, by its own hands: `python -m tools.attack NAME [--seconds N] [--seed N]`.

Each module is one attack. It runs for a bounded time against real engines on loopback that it starts itself, counts
what it tried, and says what did not hold. README.md lists them; docs/security.md says what was tried and held.
"""
