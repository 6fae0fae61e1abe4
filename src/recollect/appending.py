"""What every store checks before it writes: the session, the turn and its messages, turned into bytes.

Checked here, once, so that a bad value is refused the same way on every engine and before anything is written.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import msgspec

from recollect.bounds import bounded
from recollect.errors import Conflict, Refused, TurnReused, shorten
from recollect.fingerprint import fingerprint
from recollect.json_values import check_text
from recollect.message import Message, encode

log = logging.getLogger("recollect")

Said = Message | Mapping[str, Any]
"""What a caller may append: a message, or a dictionary in OpenAI's or LangChain's shape."""

SESSION_BYTES_MAX = 100_000
TURN_BYTES_MAX = 1_000
TURN_RECORDS_MAX = 10_000
TURN_RECORD_BYTES_MAX = 256 * 1024 * 1024


class SessionChange(msgspec.Struct, frozen=True):
    """The fields common to every change of a session, checked."""

    session: str
    key: bytes
    """The session id as bytes; distinct ids have distinct bytes, lone surrogates included."""
    turn: bytes | None
    expect: int | None
    """Capped so that every engine can compare it; no session reaches the cap, so a capped value still conflicts."""
    asked: int | None
    """`expect` as the caller gave it."""
    fingerprint: bytes | None
    """A digest of the change's content; only where there is a turn id to store it with."""

    def conflict(self, actual: int) -> Conflict:
        assert self.asked is not None
        return Conflict(self.session, self.asked, actual)

    def reused(self) -> TurnReused:
        """The error for a turn id that is already stored with another fingerprint."""
        assert self.turn is not None
        return TurnReused(self.session, session_of(self.turn))


class Append(SessionChange, frozen=True):
    """One turn, ready to be written."""

    records: list[bytes]


def checked_append(
    session: str, messages: Sequence[Said], turn: str | None = None, expect: int | None = None
) -> Append:
    key = session_key(session)
    given = checked_messages(messages)
    records = encoded_records(given)
    last_seen = checked_expect(expect)
    if turn is None:
        return Append(session, key, None, last_seen, expect, None, records)
    return Append(session, key, turn_key(turn), last_seen, expect, fingerprint(given), records)


def checked_messages(messages: Sequence[Said], least: int = 1) -> Sequence[Message]:
    """The messages of a turn; dictionaries of known shapes are converted."""
    if type(messages) is not list and (isinstance(messages, Message) or not isinstance(messages, Sized)):
        raise Refused(_NOT_MESSAGES)
    if not least <= len(messages) <= TURN_RECORDS_MAX:
        raise Refused(f"messages: a turn has {least} to {TURN_RECORDS_MAX:,} messages, not {len(messages)}")
    for message in messages:
        if not isinstance(message, Message):
            return _made(messages)
    return cast(Sequence[Message], messages)


def _made(messages: Sequence[object]) -> list[Message]:
    from recollect.shapes import as_message  # only dictionaries need it

    made = [message for given in messages if (message := as_message(given)) is not None]
    if len(made) < len(messages):
        raise Refused(_NOT_MESSAGES)
    return made


def checked_expect(expect: int | None) -> int | None:
    return None if expect is None else bounded("expect, the last sequence seen", expect)


def encoded_records(messages: Sequence[Message]) -> list[bytes]:
    """Stops as soon as the turn is too large, instead of encoding all of it first."""
    records: list[bytes] = []
    size = 0
    for message in messages:
        record = encode(message)
        size += len(record)
        if size > TURN_RECORD_BYTES_MAX:
            raise Refused(
                f"messages: more than {TURN_RECORD_BYTES_MAX:,} bytes in one turn; append smaller turns"
            )
        records.append(record)
    return records


_NOT_MESSAGES = (
    "messages: a sequence of Message, such as [Message('user', 'hello')], or of dictionaries, such as "
    "[{'role': 'user', 'content': 'hello'}]"
)


def session_key(session: str) -> bytes:
    check_text(session, "session")
    if not session:
        raise Refused("session: an id of text, such as 'user-42'; not ''")
    if len(session) > SESSION_BYTES_MAX:
        raise Refused(
            f"session {shorten(session)}: {len(session):,} characters; at most {SESSION_BYTES_MAX:,} bytes"
        )
    key = session.encode("utf-8", "surrogatepass")
    if len(key) > SESSION_BYTES_MAX:
        raise Refused(f"session {shorten(session)}: {len(key):,} bytes; at most {SESSION_BYTES_MAX:,}")
    return key


def prefix_key(prefix: str | None) -> bytes:
    """What the keys of sessions with this prefix begin with."""
    if prefix is None:
        return b""
    check_text(prefix, "prefix")
    return session_key(prefix) if prefix else b""


def session_of(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def listed(keys: Iterable[object]) -> Iterator[str]:
    """The ids of a listing. An id that no call of ours can have written is left out and logged."""
    for key in keys:
        try:
            if not isinstance(key, bytes):
                raise ValueError(f"a value of type {type(key).__name__}")
            yield session_of(key)
        except ValueError as error:
            log.warning("an id in the list of sessions is not recollect's, and is left out: %s", error)


def turn_key(turn: str) -> bytes:
    check_text(turn, "turn")
    if not turn:
        raise Refused("turn: an id of text, such as a UUID; not ''")
    if len(turn) > TURN_BYTES_MAX:
        raise Refused(f"turn {shorten(turn)}: {len(turn):,} characters; at most {TURN_BYTES_MAX:,} bytes")
    key = turn.encode("utf-8", "surrogatepass")
    if len(key) > TURN_BYTES_MAX:
        raise Refused(f"turn {shorten(turn)}: {len(key):,} bytes; at most {TURN_BYTES_MAX:,}")
    return key


def checked_window(last: int | None, after: int | None) -> tuple[int | None, int | None]:
    """The same window in numbers that every engine can hold."""
    return (
        None if last is None else bounded("last", last),
        None if after is None else bounded("after", after),
    )
