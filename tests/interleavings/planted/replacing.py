"""A session is replaced while somebody reads it."""

from tests.planted.emptied_then_filled import factory as in_two_steps
from tests.planted.emptied_then_filled import twin as in_one_step

__all__ = ["in_one_step", "in_two_steps"]
