"""What every store checks before it writes: the session, the turn and its messages, turned into bytes.

Checked here, once, so that a bad value is refused the same way on every engine and before anything is written.
"""

from collections.abc import Sequence

import msgspec

from recollect.bounds import bounded
from recollect.errors import Conflict, Refused, TurnReused, shorten
from recollect.fingerprint import fingerprint
from recollect.message import Message, encode

SESSION_BYTES_MAX = 100_000
TURN_BYTES_MAX = 1_000
TURN_RECORDS_MAX = 10_000
TURN_RECORD_BYTES_MAX = 256 * 1024 * 1024


class Append(msgspec.Struct, frozen=True):
    """One turn, ready to be written."""

    session: str
    key: bytes
    """The session id as bytes; distinct ids have distinct bytes, lone surrogates included."""
    records: list[bytes]
    turn: bytes | None
    expect: int | None
    """Bounded, so that an engine can compare it; a number that no session reaches is still one that none has."""
    asked: int | None
    """What the caller gave as `expect`."""
    fingerprint: bytes | None
    """Of the messages, where there is a turn id to keep it with."""

    def conflict(self, actual: int) -> Conflict:
        assert self.asked is not None
        return Conflict(self.session, self.asked, actual)

    def reused(self) -> TurnReused:
        """The error of a turn id that is known with another fingerprint."""
        assert self.turn is not None
        return TurnReused(self.session, session_of(self.turn))


def checked_append(
    session: str, messages: Sequence[Message], turn: str | None = None, expect: int | None = None
) -> Append:
    key = session_key(session)
    if isinstance(messages, Message):
        raise Refused(_NOT_MESSAGES)
    for message in messages:
        if not isinstance(message, Message):
            raise Refused(_NOT_MESSAGES)
    if not 0 < len(messages) <= TURN_RECORDS_MAX:
        raise Refused(f"messages: a turn has 1 to {TURN_RECORDS_MAX:,} messages, not {len(messages)}")
    last_seen = None if expect is None else bounded("expect, the last sequence seen", expect)
    records = [encode(message) for message in messages]
    if len(records) > 1 and sum(map(len, records)) > TURN_RECORD_BYTES_MAX:
        raise Refused(
            f"messages: more than {TURN_RECORD_BYTES_MAX:,} bytes in one turn; append smaller turns"
        )
    if turn is None:
        return Append(session, key, records, None, last_seen, expect, None)
    return Append(session, key, records, _turn_key(turn), last_seen, expect, fingerprint(messages))


_NOT_MESSAGES = "messages: a sequence of Message, such as [Message('user', 'hello')]"


def session_key(session: str) -> bytes:
    if not isinstance(session, str):
        raise Refused(f"session: an id of text, not {session!r}")
    key = session.encode("utf-8", "surrogatepass")
    if len(key) > SESSION_BYTES_MAX:
        raise Refused(f"session {shorten(session)}: {len(key):,} bytes; at most {SESSION_BYTES_MAX:,}")
    return key


def session_of(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _turn_key(turn: str) -> bytes:
    if not isinstance(turn, str) or not turn:
        raise Refused(f"turn: an id of text, such as a UUID; not {turn!r}")
    key = turn.encode("utf-8", "surrogatepass")
    if len(key) > TURN_BYTES_MAX:
        raise Refused(f"turn {shorten(turn)}: {len(key):,} bytes; at most {TURN_BYTES_MAX:,}")
    return key


def checked_window(last: int | None, after: int | None) -> tuple[int | None, int | None]:
    """The same window in numbers that every engine holds."""
    return (
        None if last is None else bounded("last", last),
        None if after is None else bounded("after", after),
    )
