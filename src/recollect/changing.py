"""What every store checks before any change other than an append; `appending` has the checks for appends."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recollect.appending import (
    TURN_RECORD_BYTES_MAX,
    TURN_RECORDS_MAX,
    Append,
    Said,
    SessionChange,
    checked_append,
    checked_expect,
    checked_messages,
    encoded_records,
    session_key,
    turn_key,
)
from recollect.bounds import INTEGER_MAX, bounded, is_sequence
from recollect.checksum import checksum, has_changed
from recollect.errors import Conflict, NotFound, Refused, TurnReused, Unreadable, shorten, shown
from recollect.fingerprint import fingerprint
from recollect.json_values import check_json, check_text, decode_json, encode_json
from recollect.message import Message, decode
from recollect.store import Stored

METADATA_BYTES_MAX = 1_000_000
SESSIONS_AT_ONCE_MAX = 1_000
MOMENT_MAX = 253_402_300_799.0
"""The end of the year 9999."""


class Retraction(SessionChange, frozen=True):
    """Messages to be taken back, by their sequences: distinct, in ascending order."""

    sequences: list[int]

    def not_found(self, sequence: int) -> NotFound:
        return NotFound(
            f"session {shorten(self.session)} has no message {sequence}: retracted, forgotten, expired, or never "
            "written; nothing was changed"
        )


class Replacement(Append, frozen=True):
    """Messages that take the place of all that are there; there may be none."""


class Annotation(SessionChange, frozen=True):
    """A session's new metadata, as JSON."""

    metadata: bytes


class Fork(SessionChange, frozen=True):
    """A copy of the session; the turn id belongs to the new session."""

    new: str
    new_key: bytes
    upto: int

    def reused(self) -> TurnReused:
        assert self.turn is not None
        return TurnReused(self.new, self.turn.decode("utf-8", "surrogatepass"))

    def taken(self, actual: int) -> Conflict:
        """The error for a new session that already exists."""
        return Conflict(self.new, 0, actual)

    def not_found(self) -> NotFound:
        return NotFound(
            f"session {shorten(self.session)} has nothing to copy: forgotten, expired, or never written; "
            "nothing was changed"
        )


def checked_retraction(
    session: str, sequences: Sequence[int], turn: str | None, expect: int | None
) -> Retraction:
    if not 0 < len(sequences) <= TURN_RECORDS_MAX:
        raise Refused(f"retract: 1 to {TURN_RECORDS_MAX:,} sequences at once, not {len(sequences)}")
    for sequence in sequences:
        if type(sequence) is not int or not is_sequence(sequence):
            raise Refused(f"retract: the sequences of messages, such as 7; not {shown(sequence)}")
    distinct = sorted(set(sequences))
    return Retraction(*_common(session, turn, expect, ["retract", distinct]), distinct)


def checked_replacement(
    session: str, messages: Sequence[Said], turn: str | None, expect: int | None
) -> Replacement:
    given = checked_messages(messages, least=0)
    records = encoded_records(given)
    return Replacement(*_common(session, turn, expect, ["replace"], given), records)


def checked_annotation(
    session: str, metadata: Mapping[str, Any], turn: str | None, expect: int | None
) -> Annotation:
    if not isinstance(metadata, Mapping):
        raise Refused(f"metadata: a mapping of text to JSON, not {shown(metadata)}")
    given = dict(metadata)
    check_json(given, "metadata", METADATA_BYTES_MAX)
    encoded = metadata_record(given)
    if len(encoded) > METADATA_BYTES_MAX:
        raise Refused(f"metadata: {len(encoded):,} bytes; at most {METADATA_BYTES_MAX:,}")
    return Annotation(*_common(session, turn, expect, ["annotate", given]), encoded)


def checked_fork(session: str, new: str, upto: int | None, turn: str | None, expect: int | None) -> Fork:
    end = INTEGER_MAX if upto is None else bounded("upto", upto)
    common = _common(session, turn, expect, ["fork", session, upto if upto is None else end])
    if new == session:
        raise Refused(f"fork: the new session needs an id other than its source's, {shorten(session)}")
    return Fork(*common, new, session_key(new), end)


def checked_turns(
    turns: Mapping[str, Sequence[Said]], turn: str | None, expect: Mapping[str, int] | None
) -> list[Append]:
    """Sorted by the sessions' bytes, the order in which every writer locks them."""
    if not isinstance(turns, Mapping) or not 0 < len(turns) <= SESSIONS_AT_ONCE_MAX:
        raise Refused(f"append_many: a mapping of 1 to {SESSIONS_AT_ONCE_MAX:,} sessions to their messages")
    expected = {} if expect is None else expect
    if strangers := sorted(set(expected) - set(turns)):
        raise Refused(f"expect: session {shorten(strangers[0])} is not among those appended to")
    appends: list[Append] = []
    count = size = 0
    for session, messages in turns.items():
        append = checked_append(session, messages, turn, expected.get(session))
        count += len(append.records)
        size += sum(map(len, append.records))
        if count > TURN_RECORDS_MAX or size > TURN_RECORD_BYTES_MAX:
            raise Refused(
                f"append_many: more than {TURN_RECORDS_MAX:,} messages or {TURN_RECORD_BYTES_MAX:,} bytes at once; "
                "append to fewer sessions at a time"
            )
        appends.append(append)
    return sorted(appends, key=lambda append: append.key)


def checked_updated_after(moment: float) -> float:
    """Epoch seconds, within what every engine's calendar holds."""
    if isinstance(moment, bool) or not isinstance(moment, int | float) or math.isnan(moment):
        raise Refused(f"updated_after: epoch seconds, such as time.time() - 3600; not {shown(moment)}")
    return min(max(float(min(moment, MOMENT_MAX)), -1.0), MOMENT_MAX)


def needle_of(message_id: str) -> bytes | None:
    """Bytes that every record of a message with this id contains; None where a record may spell the id differently."""
    check_text(message_id, "message_id")
    plain = message_id.isascii() and message_id.isprintable() and not set(message_id) & {'"', "\\", "/"}
    derived = message_id.startswith("lifted-")  # made up for records without an id, see `recollect.message`
    return message_id.encode() if plain and message_id and not derived else None


def found_in(items: Iterable[Stored | tuple[int, bytes]], message_id: str) -> Stored | None:
    """The last message with this id; items are messages, or records with their sequences."""
    found = None
    for item in items:
        stored = item if isinstance(item, Stored) else Stored(item[0], decode(item[1]))
        if isinstance(stored.message, Message) and stored.message.id == message_id:
            found = stored
    return found


def metadata_record(metadata: dict[str, Any]) -> bytes:
    """What stores keep of it: JSON and a checksum, as of a message."""
    encoded = encode_json(metadata)
    return encoded + checksum(encoded)


def metadata_of(session: str, encoded: bytes | None) -> dict[str, Any]:
    """What `annotate` was given; empty if it was never called."""
    if encoded is None:
        return {}
    try:
        found = None if has_changed(encoded) else decode_json(encoded)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unreadable(
            f"session {shorten(session)}: its metadata is not what was written: {str(encoded)[:100]}"
        )
    return found


def _common(
    session: str, turn: str | None, expect: int | None, said: list[Any], messages: Sequence[Message] = ()
) -> tuple[str, bytes, bytes | None, int | None, int | None, bytes | None]:
    key = session_key(session)
    last_seen = checked_expect(expect)
    if turn is None:
        return session, key, None, last_seen, expect, None
    return session, key, turn_key(turn), last_seen, expect, fingerprint(messages, said)
