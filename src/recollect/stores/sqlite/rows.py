"""The rows of a SQLite store: a session's counters, its messages, and the list of sessions."""

import sqlite3
import time
from array import array
from collections.abc import Generator, Sequence
from zlib import crc32

import msgspec

from recollect.errors import Unreadable
from recollect.message import Damaged, Message, decode_all, decode_joined
from recollect.slices import SLICE
from recollect.store import Stored
from recollect.stores.sqlite.file import CHECKED_COLUMNS
from recollect.tombstone import newest, placing, records_for, run_first

ROWS_FREED_MAX = 2_000
"""Rows deleted in one transaction: a few milliseconds."""

JOINED_MAX = 200
"""Messages that are read as one value: that costs half of what as many rows do, and more memory if they are large."""

SEARCHED_AT_ONCE = 100
"""Records that may be the one that is looked for."""

SEQUENCE_MAX = 2**32 - 1

_SESSION = f"""
SELECT id, floor, ended, expires_at, marked, (
    SELECT place & {SEQUENCE_MAX} FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX} ORDER BY place DESC LIMIT 1),
    checked
FROM recollect_sessions s WHERE key = ?"""

_CHECKED = f"SELECT {', '.join(CHECKED_COLUMNS)} FROM recollect_sessions WHERE id = ?"

_RECORDS = "SELECT record FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place"
_JOINED = """
SELECT count(*), CAST(group_concat(record, '') AS BLOB) FROM recollect_messages NOT INDEXED
WHERE place BETWEEN ? AND ? AND record >= x''"""
"""In the order of their places, because the table itself is gone through; a sorted subquery costs a third more. Values
of other types, which somebody else wrote, are less than every blob."""
_NEWEST = """
SELECT place, record FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?"""
_WITH = """
SELECT place, record FROM recollect_messages WHERE place BETWEEN ? AND ? AND instr(record, ?)
ORDER BY place DESC"""
_PLACES = "SELECT place FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place"

_LIVE = f"""
(expires_at IS NULL OR expires_at > :now) AND (:prefix IS NULL OR substr(key, 1, length(:prefix)) = :prefix)
AND EXISTS (
    SELECT 1 FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX})"""

_UPDATED = f"""max(coalesce(changed, 0), coalesce((
    SELECT written FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX}
    ORDER BY place DESC LIMIT 1), 0))"""

_LIVE_SESSIONS = (
    f"SELECT id, key FROM recollect_sessions s WHERE id > :above AND {_LIVE} ORDER BY id LIMIT 500"
)

_CHANGED_SESSIONS = f"""
SELECT id, {_UPDATED} AS updated FROM recollect_sessions s WHERE {_LIVE} AND updated > :after
ORDER BY updated DESC, id DESC"""

_NAMED = "SELECT id, key FROM recollect_sessions WHERE id IN (SELECT value FROM json_each(?))"

_ABOUT = f"""
SELECT created, {_UPDATED}, (SELECT metadata FROM recollect_about WHERE session = s.id)
FROM recollect_sessions s WHERE id = ?"""

_FREE = """
DELETE FROM recollect_messages WHERE place IN (
    SELECT place FROM recollect_messages WHERE place BETWEEN :session << 32 AND (:session << 32) + (
        SELECT floor FROM recollect_sessions WHERE id = :session)
    ORDER BY place LIMIT :most)"""

_FREEABLE = """
SELECT id FROM recollect_sessions s WHERE id > ? AND EXISTS (
    SELECT 1 FROM recollect_messages WHERE place BETWEEN s.id << 32 AND (s.id << 32) + s.floor)
ORDER BY id LIMIT 500"""


class Session(msgspec.Struct):
    id: int
    floor: int
    ended: str | None
    expires_at: float | None
    marked: int
    newest: int | None
    checked: int | None = None
    """The checksum; None if an older release, or somebody by hand, wrote the row."""

    @property
    def last(self) -> int:
        return self.floor if self.newest is None else self.newest

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def session_row(connection: sqlite3.Connection, key: bytes) -> Session | None:
    row = connection.execute(_SESSION, (key,)).fetchone()
    if row is None:
        return None
    found = Session(*row)
    if is_odd(found):
        raise Unreadable(f"the session's row was changed by something other than recollect: {str(row)[:200]}")
    if not is_intact(found, key):
        raise Unreadable(
            "the session's row has changed on the disk: its checksum does not match, so which messages it shows is not "
            f"known: {str(row)[:200]}"
        )
    return found


def is_odd(found: Session) -> bool:
    """Whether the row holds what no release writes: SQLite columns hold values of any type, and one flipped bit turns
    NULL into a 0 or a 1."""
    floor, ended, expires_at = found.floor, found.ended, found.expires_at
    return (
        type(floor) is not int
        or not (ended is None or isinstance(ended, str))
        or not (expires_at is None or (isinstance(expires_at, int | float) and expires_at > 1.0))
    )


def is_intact(found: Session, key: bytes) -> bool:
    return found.checked is None or found.checked == _checksum(
        found.id, key, found.floor, found.ended, found.expires_at, found.marked
    )


def seal(connection: sqlite3.Connection, session: int) -> None:
    """Updates the checksum of the session's row; called after every change."""
    row = connection.execute(_CHECKED, (session,)).fetchone()
    connection.execute("UPDATE recollect_sessions SET checked = ? WHERE id = ?", (_checksum(*row), session))


def _checksum(
    session: int, key: bytes, floor: int, ended: str | None, expires_at: float | None, marked: int
) -> int:
    said = f"{session!r} {floor!r} {ended!r} {expires_at!r} {marked!r} "
    return crc32(key, crc32(said.encode("utf-8", "backslashreplace")))


def free(connection: sqlite3.Connection, session: int) -> bool:
    """Removes some of the messages that are no longer shown; returns whether there may be more."""
    asked = {"session": session, "most": ROWS_FREED_MAX}
    return connection.execute(_FREE, asked).rowcount == ROWS_FREED_MAX


def freeable(connection: sqlite3.Connection, above: int) -> list[tuple[int]]:
    return connection.execute(_FREEABLE, (above,)).fetchall()


def history_rows(
    connection: sqlite3.Connection,
    key: bytes,
    last: int | None,
    after: int | None,
    deadline: float,
    most: int = SEQUENCE_MAX,
) -> list[Stored] | None:
    """The window's messages in their places; a `Damaged` item marks rows that are missing in between. None if there may
    be more than `most` of them."""
    try:
        connection.execute("BEGIN")  # one snapshot for all that follows
        found = session_row(connection, key)
        if found is None or found.newest is None or found.expired(time.time()):
            return []
        above = max(found.floor, after or 0)
        window = found.newest - above if last is None else min(last, found.newest - above)
        if window <= 0:
            return []
        if window > most:
            return None
        if found.marked:
            return _marked_history(connection, found, last, above, deadline)
        return _unmarked_history(connection, found, found.newest - window, deadline)
    finally:
        if connection.in_transaction:  # some errors have ended it
            connection.execute("COMMIT")


def _unmarked_history(
    connection: sqlite3.Connection, found: Session, above: int, deadline: float
) -> list[Stored]:
    assert found.newest is not None
    # Bounds, not a limit: if there are as many rows as places, none is missing, and no row needs to name its place.
    places = (found.id << 32) + above + 1, (found.id << 32) + found.newest
    if found.newest - above <= JOINED_MAX and (together := _joined(connection, places)) is not None:
        return list(map(Stored, range(above + 1, found.newest + 1), together))
    messages: list[Message | Damaged] = []
    records = connection.execute(_RECORDS, places)
    while rows := records.fetchmany(SLICE):
        messages += decode_all([record for (record,) in rows])
        if time.monotonic() > deadline:
            raise TimeoutError
    if len(messages) == found.newest - above:
        return list(map(Stored, range(above + 1, found.newest + 1), messages))
    sequences = [place & SEQUENCE_MAX for (place,) in connection.execute(_PLACES, places)]
    return _with_holes(sequences, messages, above + 1)


def _joined(connection: sqlite3.Connection, places: tuple[int, int]) -> list[Message | Damaged] | None:
    """The messages in these places; None if any of them is missing, damaged, or of another version."""
    first, last = places
    try:
        count, joined = connection.execute(_JOINED, places).fetchone()
    except sqlite3.DataError:  # together they are larger than SQLite lets one value be
        return None
    return decode_joined(joined, count) if count == last - first + 1 else None


def _marked_history(
    connection: sqlite3.Connection, found: Session, last: int | None, above: int, deadline: float
) -> list[Stored]:
    """For a session with tombstones: enough of the newest rows to hold `last` messages."""
    assert found.newest is not None
    rows_max = -1 if last is None else records_for(last)
    places = (found.id << 32) + above + 1, (found.id << 32) + found.newest
    rows = [
        (place & SEQUENCE_MAX, record)
        for place, record in connection.execute(_NEWEST, (*places, rows_max)).fetchall()
    ]
    rows.reverse()
    expected = above + 1
    if len(rows) == rows_max:  # what is before the window is not asked for
        expected = max(expected, run_first(rows[0][1]) or rows[0][0])
    stored: list[Stored] = []
    for _ in placing(stored, rows, expected, found.newest, _missing):
        if time.monotonic() > deadline:
            raise TimeoutError
    return newest(stored, last)


def _missing(first: int, last: int) -> Stored:
    gone = f"messages {first} to {last} are missing from the file"
    return Stored(first, Damaged(b"", f"{gone}: deleted by something other than recollect"))


def _with_holes(sequences: list[int], messages: list[Message | Damaged], expected: int) -> list[Stored]:
    history: list[Stored] = []
    for sequence, message in zip(sequences, messages, strict=True):
        if sequence != expected:
            history.append(_missing(expected, sequence - 1))
        history.append(Stored(sequence, message))
        expected = sequence + 1
    return history


def live_sessions(
    connection: sqlite3.Connection, above: int, prefix: bytes | None
) -> list[tuple[int, bytes]]:
    asked = {"prefix": prefix, "now": time.time(), "above": above}
    return connection.execute(_LIVE_SESSIONS, asked).fetchall()


def changed_sessions(
    connection: sqlite3.Connection, prefix: bytes | None, updated_after: float
) -> "array[int]":
    """The numbers of sessions, the one that changed last first. A number takes 8 bytes, so a million are no burden."""
    asked = {"prefix": prefix, "now": time.time(), "after": updated_after}
    rows = connection.execute(_CHANGED_SESSIONS, asked)
    return array("q", (number for number, _ in rows))


def named_sessions(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[bytes]:
    """Their keys, in the same order; none for a session that is gone by now."""
    found: dict[int, bytes] = dict(connection.execute(_NAMED, (str(list(numbers)),)).fetchall())
    return [found[number] for number in numbers if number in found]


def described(
    connection: sqlite3.Connection, key: bytes
) -> tuple[Session, float | None, float | None, bytes | None] | None:
    """The session's row, when it was created and changed, and its metadata, all from one moment."""
    try:
        connection.execute("BEGIN")
        found = session_row(connection, key)
        if found is None:
            return None
        created, updated, metadata = connection.execute(_ABOUT, (found.id,)).fetchone()
        return found, created, updated or None, metadata
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def records_with(
    connection: sqlite3.Connection, key: bytes, needle: bytes
) -> Generator[list[tuple[int, bytes]], None, None]:
    """Records of the session that contain these bytes, with their sequences, newest first, some at a time. All are from
    one moment: a message that moves meanwhile would not be seen in either place."""
    try:
        connection.execute("BEGIN")
        found = session_row(connection, key)
        if found is None or found.newest is None or found.expired(time.time()):
            return
        places = (found.id << 32) + found.floor + 1, (found.id << 32) + found.newest
        rows = connection.execute(_WITH, (*places, needle))
        while some := rows.fetchmany(SEARCHED_AT_ONCE):
            yield [(place & SEQUENCE_MAX, record) for place, record in some]
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def expired_sessions(connection: sqlite3.Connection, above: int) -> list[tuple[int, bytes]]:
    """Numbers and keys, ordered by number, so that no row is looked at twice."""
    return connection.execute(
        "SELECT id, key FROM recollect_sessions WHERE id > ? AND expires_at <= ? ORDER BY id LIMIT 100",
        (above, time.time()),
    ).fetchall()
