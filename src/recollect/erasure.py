"""What an erasure reached, and what it could not.

`forget` hides and removes; the bytes stay in an engine's files until it overwrites them. `forget(session, erase=True)`
returns when they are gone from every file that the store can make its engine rewrite, and names the others. Gone are
the messages, the turn ids with their fingerprints, and the session's id itself: afterwards it is as if the session had
never existed, and if the id is used again its sequences begin at 1.

Another process may remember the session, and would take an erasure for a loss. So each erasure leaves a trace for it: a
digest of the id, and the time. It is kept for a week, and of the newest thousand erasures. A store looks for it only
when it misses a session; once the trace is gone, it believes that the engine has lost it.

A trace explains only what was acknowledged before the erasure: `known.ended_by` compares how long ago both were, the
one by the store's clock and the other by the engine's. If the engine's was set forward meanwhile, the erasure looks
like a loss; if it was set back, what was acknowledged in as many seconds after the erasure looks like a part of it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import blake2b

import msgspec

from recollect.errors import EngineUnavailable, NotWritten, OutcomeUnknown

TRACES_MAX = 1_000
TRACE_LIFE = timedelta(days=7)
NO_ID = b"\xff"
"""What a row begins with in place of a session's id: no id does, since this is not valid UTF-8."""


def trace_of(identity: str, key: bytes) -> bytes:
    """What stays of an erased session's id. Nobody gets from it to the id, but who guesses the id and knows the store's
    identity can tell that it was erased."""
    return blake2b(key, digest_size=16, key=identity.encode()).digest()


@contextmanager
def after_forgetting() -> Iterator[None]:
    """While what is forgotten already is erased: something has changed, even if nothing is erased."""
    try:
        yield
    except OutcomeUnknown as error:
        raise OutcomeUnknown(error.reason, ERASE_AGAIN) from error
    except (NotWritten, EngineUnavailable) as error:
        raise OutcomeUnknown(
            f"forgotten, but perhaps not erased from every file ({error})", ERASE_AGAIN
        ) from error


ERASE_AGAIN = "erase again"


def used_again() -> OutcomeUnknown:
    """For a session that was forgotten at the position that was expected, and is at another one by now."""
    return OutcomeUnknown("forgotten, but somebody has written since, so that it is not erased", ERASE_AGAIN)


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
