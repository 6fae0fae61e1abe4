"""What an erasure reached, and what it could not.

`forget` hides and removes; the bytes stay in an engine's files until it overwrites them. `forget(session, erase=True)`
returns when they are gone from every file that the store can make its engine rewrite, and names the others. Gone are
the messages, the turn ids with their fingerprints, and the session's id itself: afterwards it is as if the session had
never existed, and if the id is used again its sequences begin at 1.
"""

from collections.abc import Iterable

import msgspec


class Unreached(msgspec.Struct, frozen=True):
    """A place that may still have the bytes."""

    where: str
    why: str


class Erasure(msgspec.Struct, frozen=True):
    """The report of one erasure."""

    session: str
    """The session's id; for long-term memory, the user's."""
    reached: tuple[str, ...]
    """What was rewritten without the session."""
    unreached: tuple[Unreached, ...]
    """Where its bytes may still be, and why. Copies made elsewhere are always listed: no store knows about those."""


def erasure(
    session: str, reached: Iterable[str], unreached: Iterable[Unreached], witness: bool | None
) -> Erasure:
    """The report; `witness` says whether the witness was rewritten, None if there is no witness."""
    more = () if witness is not False else (Unreached("the witness", "its file cannot be written"),)
    told = (*reached, *(["the witness"] if witness else []))
    return Erasure(session, told, (*unreached, *more, BACKUPS))


BACKUPS = Unreached("backups and snapshots", "no store knows of the copies that were made of its files")
