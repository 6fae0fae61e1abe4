"""Stores of third parties that do what they say, and the cells that must not accuse them.

To add one: a module with a `factory` and its `CELLS`. Nothing is listed by hand. A cell that accuses its store today
says so in `accused`, and the test expects it; when the kit has learnt better, that test is red until the line is gone.
"""
