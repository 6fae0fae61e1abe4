"""Kept for its address, by which releases start each other's workers; see `recollect.verify.target.other_python`."""

from recollect.verify.target.other_python import main

__all__ = ["main"]
