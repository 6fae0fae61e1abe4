"""Numbers that a caller gives and an engine gets, bounded in one place.

A Python integer has no end, an engine's has: 64 bits in SQLite and PostgreSQL, 53 in a script of Redis, which counts in
doubles. What does not fit would be an error of the driver in the middle of a transaction, or quietly another number.
"""

from recollect.errors import Refused, shown

INTEGER_MAX = 2**53 - 1
"""Every engine holds this and all below exactly, and no sequence gets there: as a bound it means "all there is"."""


def bounded(name: str, value: int, least: int = 0) -> int:
    """The number, or `INTEGER_MAX` for anything above; `Refused` if it is none, or too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{name}: a number of at least {least}; not {shown(value)}")
    return min(value, INTEGER_MAX)


def is_sequence(value: int) -> bool:
    """Whether a message or a memory can have this number."""
    return 0 < value <= INTEGER_MAX
