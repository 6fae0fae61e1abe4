"""Numbers that a caller gives and an engine gets, bounded in one place.

Python integers have no limit; an engine's do: 64 bits in SQLite and PostgreSQL, 53 in a Redis script, which counts in
doubles. A number that does not fit would be a driver error in the middle of a transaction, or silently another number.
"""

from recollect.errors import Refused, shown

INTEGER_MAX = 2**53 - 1
"""Every engine holds every integer up to this one exactly, and no sequence gets there: as a bound it means "all"."""


def bounded(name: str, value: int, least: int = 0) -> int:
    """The number, or `INTEGER_MAX` for anything above it; `Refused` if it is not a number, or too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{name}: a number of at least {least}; not {shown(value)}")
    return min(value, INTEGER_MAX)


def is_sequence(value: int) -> bool:
    """Whether a message or a memory can have this number."""
    return 0 < value <= INTEGER_MAX
