"""Stores with one realistic bug each, and beside each the same store without it.

To add one: a module with `PLANTED`, a `factory` that makes the store with the bug and a `twin` that makes the same
store without it. Nothing is listed by hand; `catalogue` finds it. Modules without `PLANTED` are what the stores are
made of.
"""
