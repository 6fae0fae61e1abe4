"""Stores with one realistic bug each. Every one must be caught, under its right name, by the cell it declares.

To add one: a module with a `factory` and a `PLANTED`. Nothing is listed by hand; `catalogue` finds it.
"""
