"""The PostgreSQL schema as a running store sees it: which version it is, and the statements that use it.

The schema itself is made by `migrations/`, which needs Alembic; a store whose schema is current never imports it.
Names are relative to the connection's ``search_path``, so a separate schema is a separate namespace.

A schema newer than this release is used if it allows that: `recollect_meta.oldest_release_schema` is raised only by a
change that older releases could not work with.
"""

from dataclasses import dataclass

import asyncpg

from recollect.errors import CannotOpen

RELEASE_SCHEMA = 4
"""The newest revision this release knows; a test compares it with the migrations."""

VERSION_TABLE = "recollect_version"

_VERSION = f"""
SELECT v.version_num, m.identity::text, m.oldest_release_schema FROM {VERSION_TABLE} v, recollect_meta m"""

IDENTITY = "SELECT identity::text FROM recollect_meta"


@dataclass(frozen=True)
class Version:
    schema: int
    identity: str
    oldest_release_schema: int


async def read_version(connection: asyncpg.Connection, timeout_s: float) -> Version | None:
    """None if there is no schema yet."""
    try:
        row = await connection.fetchrow(_VERSION, timeout=timeout_s)
    except asyncpg.UndefinedTableError:
        return None
    if row is None:
        return None
    if not str(row[0]).isdecimal():
        raise CannotOpen(
            f"{VERSION_TABLE} holds {str(row[0])[:20]!r}, which is no version: it has changed on the disk, or by hand"
        )
    return Version(int(row[0]), row[1], row[2])


def usable(version: Version | None) -> Version | None:
    """None if it must be migrated first; raises `CannotOpen` if this release is too old for it."""
    if version is None or version.schema < RELEASE_SCHEMA:
        return None
    if version.oldest_release_schema > RELEASE_SCHEMA:
        raise CannotOpen(
            f"the memory has schema {version.schema}, which needs a release that knows schema "
            f"{version.oldest_release_schema}; this one knows {RELEASE_SCHEMA}: upgrade recollect"
        )
    return version


# ---- a session's row


def checksum(row: str, name: str) -> str:
    """The checksum of a row, as SQL (see `migrations/versions/r0004_checksums.py`)."""
    marked = f"{row}marked::integer"
    expires = f"encode(timestamptz_send({row}expires_at), 'hex') COLLATE \"C\""
    return (
        f"hashtextextended(encode({name}, 'hex') COLLATE \"C\", hashint8extended({row}id, "
        f"hashint8extended({row}floor, coalesce(hashtextextended({expires}, {marked}), {marked}))))"
    )


INTACT = f"s.checked = {checksum('s.', '$1')}"
"""Whether this is the session that was asked for ($1), and its row is as it was written. NULL is no."""
INTACT_ROW = f"s.checked = {checksum('s.', 's.name')}"
_LAST = f"CASE WHEN {INTACT} THEN s.last END AS last"
"""A session without a counter is `Unreadable`."""

# ---- appending

_BEHIND = """
SELECT FROM unnest((SELECT ${names}::bytea[]), (SELECT ${known}::bigint[])) AS k (name, known)
 WHERE k.known > coalesce((SELECT s.last FROM recollect_sessions s WHERE sha256(s.name) = sha256(k.name)), 0)"""


def _unless_behind(function: str, arguments: int) -> str:
    """A call of a function, or NULL if a session is behind what the caller knows of it.

    The last two arguments are the sessions and the last known sequence of each. One statement is one snapshot, and a
    session never goes back, so what is true here is still true when the function locks the session.

    An array that comes from a subquery has no length that the planner could see. If it could, it would take a plan
    for each length to be worth making, and make one for every batch.
    """
    behind = _BEHIND.format(names=arguments + 1, known=arguments + 2)
    given = ", ".join(f"${number}" for number in range(1, arguments + 1))
    return f"SELECT CASE WHEN NOT EXISTS ({behind}) THEN {function}({given}) END"


GO_ON = f"""
INSERT INTO recollect_sessions AS s (name, last, marked) SELECT k.name, k.known, true
    FROM unnest($1::bytea[], $2::bigint[]) AS k (name, known) WHERE k.known > 0 ORDER BY k.name
ON CONFLICT (sha256(name)) DO UPDATE SET last = excluded.last, marked = true
 WHERE s.last < excluded.last AND {INTACT_ROW}"""
"""Lost messages keep their sequences, so that reads show that they are gone. From now on the session is read like one
with tombstones: the last n messages are no longer the last n sequences."""

POSITIONS = """
SELECT coalesce((SELECT s.last FROM recollect_sessions s WHERE sha256(s.name) = sha256(k.name)), 0)
  FROM unnest($1::bytea[]) WITH ORDINALITY AS k (name, place) ORDER BY k.place"""

APPEND = _unless_behind("recollect_append", 11)
STORED, REPEATED, CONFLICT, REUSED = 0, 1, 2, 3

# One append to a live session, without the function's overhead. In any other case it finds no row, and so changes
# nothing: no such session, one that has lost messages ($8 is its last known sequence), expired, another `expect`, a
# known turn, too many turns, other settings, a row that is not intact. Then `recollect_append` decides. Of two racing
# appends with one turn id, the second violates the turn's primary key.
_EXPIRY = """CASE
               WHEN $5 AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + $4)
               ELSE clock_timestamp() + $4 END"""

_AS_OPENED = """current_setting('synchronous_commit') = $6
       AND concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'),
                     current_setting('synchronous_standby_names')) = $7"""

_APPEND_ONE = """
WITH session AS (
    UPDATE recollect_sessions s
       SET last = s.last + {size}, updated_at = clock_timestamp() {changes} {turns}
     WHERE {which}
       AND {as_opened} {turn_is_new}
    RETURNING {id} AS id, s.last {seen}
), message AS (
    INSERT INTO recollect_messages (session_id, sequence, record) {records}
) {turn}
SELECT last {shown} FROM session"""

_BY_NAME = {
    "changes": f", expires_at = {_EXPIRY}",
    "which": f"""sha256(s.name) = sha256($1)
       AND ($3::bigint IS NULL OR s.last = $3) AND s.last >= $8
       AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
       AND {INTACT}""",
    "id": "s.id",
    "seen": ", s.floor, s.marked, s.checked, s.expires_at",
    "shown": ", id, floor, marked, CASE WHEN expires_at IS NULL THEN checked END",
}
_BY_NUMBER = {
    "changes": "",
    "which": """s.id = $1 AND s.floor = $4 AND s.marked = $5 AND s.checked = ${checked} AND s.expires_at IS NULL
       AND s.last BETWEEN $8 AND $3""",
    "id": "$1",
    "seen": "",
    "shown": "",
}
"""For a row that the other statement has seen: if it has the same checksum, and what that covers is the same, it is
intact, which costs less to see than to compute. Only where nothing expires."""

_ONE_RECORD = {"size": "1", "records": "SELECT id, last, $2::bytea FROM session"}
_MANY_RECORDS = {
    "size": "cardinality($2::bytea[])",
    "records": "SELECT id, last - cardinality($2) + r.place, r.record "
    "FROM session, unnest($2) WITH ORDINALITY AS r (record, place)",
}
_NO_TURN = {"turns": "", "turn_is_new": "", "turn": ""}
_TURN = {
    "turns": ", turns = s.turns + 1",
    "turn_is_new": "AND s.turns < $10 "
    "AND NOT EXISTS (SELECT FROM recollect_turns t WHERE t.session_id = s.id AND t.turn = $9)",
    "turn": ", turn AS (INSERT INTO recollect_turns (session_id, turn, first, last, fingerprint) "
    "SELECT id, $9, last - {size} + 1, last, $11 FROM session)",
}


def _append_one(row: dict[str, str], records: dict[str, str], turn: dict[str, str]) -> str:
    parts = {**row, **records, **turn, "as_opened": _AS_OPENED, "turn": turn["turn"].format(**records)}
    if row is _BY_NUMBER:
        parts["which"] = row["which"].format(checked=9 if turn is _NO_TURN else 12)
    return _APPEND_ONE.format(**parts)


def _append_ones(row: dict[str, str]) -> dict[tuple[bool, bool], str]:
    return {
        (many, turn): _append_one(row, _MANY_RECORDS if many else _ONE_RECORD, _TURN if turn else _NO_TURN)
        for many in (False, True)
        for turn in (False, True)
    }


APPEND_ONE, APPEND_SEEN = _append_ones(_BY_NAME), _append_ones(_BY_NUMBER)
"""Keyed by whether there are several records, and whether there is a turn id."""

# A batch of such appends, each session once. A session whose case is not plain is left out, and is not in the answer.
# The rows are locked in the order given, because the inner query cannot be joined in any other way; the UPDATE by
# itself could lock them in the order of the table, and two batches could wait for each other. The bounds of `place`
# hold for every batch: they make the planner expect one row, and so use the indexes even while it knows nothing of
# the table's size. For the subqueries around the arrays see `_unless_behind`.
_APPEND_TOGETHER = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest((SELECT $1::{which_type}[]), (SELECT $2::{records_type}[]), (SELECT $3::bigint[])
                         {arrays}{row_arrays})
             WITH ORDINALITY AS k ({which}, {content}, known{columns}{row_columns}, place)
     WHERE place BETWEEN 1 AND 1000000 AND {as_opened}
), found AS MATERIALIZED (
    SELECT s.id AS found_id, k.* FROM given k CROSS JOIN LATERAL (
        SELECT {id} AS id FROM recollect_sessions s
         WHERE {same} AND s.last >= k.known {claims}
           FOR NO KEY UPDATE
    ) s
), session AS (
    UPDATE recollect_sessions s
       SET last = s.last + {size}, updated_at = clock_timestamp() {turns} {changes}
      FROM found k WHERE s.id = k.found_id
    RETURNING k.found_id AS id, s.last, k.place, k.{content}{returned}{seen}
), message AS (
    INSERT INTO recollect_messages (session_id, sequence, record) {records}
) {turn}
SELECT array_agg(place), array_agg(last) {shown} FROM session"""

_EACH_BY_NAME = {
    "which_type": "bytea",
    "which": "name",
    "row_arrays": "",
    "row_columns": "",
    "id": "s.id",
    "same": f"""sha256(s.name) = sha256(k.name)
           AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
           AND s.checked = {checksum("s.", "k.name")}""",
    "changes": f", expires_at = {_EXPIRY}",
    "seen": ", s.floor, s.marked, s.checked, s.expires_at",
    "shown": """, array_agg(id), array_agg(floor), array_agg(marked),
       array_agg(CASE WHEN expires_at IS NULL THEN checked END)""",
}
_EACH_BY_NUMBER = {
    "which_type": "bigint",
    "which": "id",
    "row_arrays": ", (SELECT $4::bigint[]), (SELECT $5::boolean[]), (SELECT ${checked}::bigint[])",
    "row_columns": ", floor, marked, checked",
    "id": "k.id",
    "same": """s.id = k.id AND s.floor = k.floor AND s.marked = k.marked AND s.checked = k.checked
           AND s.expires_at IS NULL""",
    "changes": "",
    "seen": "",
    "shown": "",
}
_ONE_EACH = {
    "records_type": "bytea",
    "content": "record",
    "size": "1",
    "records": "SELECT id, last, record FROM session",
}
_SEVERAL = {
    "records_type": "bigint",
    "content": "size",
    "size": "k.size",
    "records": "SELECT s.id, s.last - r.back, r.record FROM session s JOIN unnest((SELECT ${0}::bigint[]), "
    "(SELECT ${1}::bigint[]), (SELECT ${2}::bytea[])) AS r (place, back, record) USING (place)",
}
_UNCLAIMED = {"arrays": "", "columns": "", "claims": "", "turns": "", "returned": "", "turn": ""}
_CLAIMS = {
    "arrays": ", (SELECT $8::bigint[]), (SELECT $9::bytea[]), (SELECT $10::bytea[])",
    "columns": ", expect, turn, fingerprint",
    "claims": "AND (k.expect IS NULL OR s.last = k.expect) AND (k.turn IS NULL OR s.turns < $11 "
    "AND NOT EXISTS (SELECT FROM recollect_turns t WHERE t.session_id = s.id AND t.turn = k.turn))",
    "turns": ", turns = s.turns + CASE WHEN k.turn IS NULL THEN 0 ELSE 1 END",
    "returned": ", k.turn, k.fingerprint",
    "turn": ", turn AS (INSERT INTO recollect_turns (session_id, turn, first, last, fingerprint) "
    "SELECT id, turn, last - {size} + 1, last, fingerprint FROM session WHERE turn IS NOT NULL)",
}


def _append_together(row: dict[str, str], records: dict[str, str], claims: dict[str, str]) -> str:
    free = 12 if claims is _CLAIMS else 8
    checked = free + (3 if records is _SEVERAL else 0)
    parts = {
        **row,
        **records,
        **claims,
        "as_opened": _AS_OPENED,
        "row_arrays": row["row_arrays"].format(checked=checked),
        "records": records["records"].format(*range(free, free + 3)),
        "turn": claims["turn"].format(size=records["size"].removeprefix("k.")),
    }
    return _APPEND_TOGETHER.format(**parts)


APPEND_TOGETHER: dict[tuple[bool, bool, bool], str] = {
    (seen, several, claims): _append_together(
        _EACH_BY_NUMBER if seen else _EACH_BY_NAME,
        _SEVERAL if several else _ONE_EACH,
        _CLAIMS if claims else _UNCLAIMED,
    )
    for seen in (False, True)
    for several in (False, True)
    for claims in (False, True)
}
"""Keyed by whether all rows have been seen, whether a session has several records, and whether any has a turn id or a
position that it expects."""

# ---- reading

# One statement is one snapshot. If nothing was ever retracted, sequences have no gaps, so the last n are a range of the
# primary key, which the scan enters at its lower end: the cost is the rows returned. The join depends on the session's
# row, so it is a nested loop over one session and keeps the order of the subquery. A session that may have tombstones
# returns a special floor and no messages: it is then read with the other statement.
MARKED = -1

_NEAR = "session_id BETWEEN s.id AND s.id AND sequence <= s.last + 4294967296"
"""Not up to `s.last`: a message above the counter shows that the counter has changed on the disk. Without an upper end
the planner expects a third of the table. The bounds of the session say nothing more than that it is this one, except
to the planner: it expects fewer rows, and so goes along the index even while it knows nothing of the table, instead of
collecting the rows and sorting them."""

_NUMBER = "coalesce(sequence, 0)"
"""A number that has become NULL on the disk is one that no message has."""
_OWN = "CASE WHEN session_id = s.id THEN record END"
"""An index that has changed on the disk leads to another session's message. PostgreSQL believes it: only this looks."""

_FOUND = f"""(
      SELECT s.id, s.last, s.floor, s.marked, {_LAST.replace("AS last", "AS counted")}
        FROM recollect_sessions s WHERE sha256(s.name) = sha256($1) AND {{which}} OFFSET 0
  ) s"""
"""Without the OFFSET, the checksum would be computed for each message."""

_HISTORY = f"""
SELECT s.counted, CASE WHEN s.marked THEN {MARKED} ELSE s.floor END, m.sequence, m.record
  FROM {_FOUND}
  LEFT JOIN LATERAL (
      SELECT {_NUMBER} AS sequence, {_OWN} AS record FROM recollect_messages
       WHERE session_id = s.id AND sequence > greatest(s.floor, $2, s.last - $3) AND {_NEAR}
         AND NOT s.marked
       ORDER BY recollect_messages.sequence
  ) m ON true"""
"""A row for each message, though what is said of the session is the same in all: the client reads the first while the
server looks for the next. A few large values are parsed faster, but take as long: one waits for the other."""

_UNEXPIRED = f"(s.expires_at IS NULL OR s.expires_at > clock_timestamp() OR ({INTACT}) IS NOT TRUE)"
HISTORY = _HISTORY.format(which=_UNEXPIRED)

HISTORY_MARKED = f"""
SELECT s.counted, s.floor, m.sequence, m.record
  FROM {_FOUND.format(which=_UNEXPIRED)}
  LEFT JOIN LATERAL (
      SELECT {_NUMBER} AS sequence, {_OWN} AS record FROM recollect_messages
       WHERE session_id = s.id AND sequence > greatest(s.floor, $2) AND {_NEAR}
       ORDER BY recollect_messages.sequence DESC LIMIT $3
  ) m ON true"""
"""$3 is the number of rows; the newest come first."""

_CAUGHT_UP = "s.last >= $4 AND pg_is_in_recovery()"
HISTORY_REPLICA = _HISTORY.format(which=_CAUGHT_UP)
"""Find no row unless this is a standby whose session is at least as new as the primary's was ($4). Whether the session
was forgotten or expired since is for the primary to say, by its own clock."""

SESSION = f"""
SELECT {_LAST}, s.floor, s.expires_at IS NOT NULL, coalesce(s.expires_at <= clock_timestamp(), false)
  FROM recollect_sessions s WHERE sha256(s.name) = sha256($1)"""

TOUCH = f"""
UPDATE recollect_sessions s SET expires_at = clock_timestamp() + $2
 WHERE sha256(s.name) = sha256($1) AND s.expires_at > clock_timestamp() AND {INTACT}"""

# ---- listing

_LIVE = "floor < last AND (expires_at IS NULL OR expires_at > clock_timestamp())"

LIVE_SESSIONS = f"""
SELECT id, name FROM recollect_sessions
 WHERE id > $1 AND {_LIVE} AND ($2::bytea IS NULL OR substring(name FROM 1 FOR length($2)) = $2)
 ORDER BY id LIMIT 500"""

CHANGED_SESSIONS = f"""
SELECT string_agg(int8send(id), '' ORDER BY updated_at DESC NULLS LAST, id DESC) FROM recollect_sessions
 WHERE {_LIVE} AND ($1::bytea IS NULL OR substring(name FROM 1 FOR length($1)) = $1)
   AND coalesce(updated_at, 'epoch') > to_timestamp($2)"""
"""Their numbers, 8 bytes each, so that a million of them are no burden."""

NAMED_SESSIONS = """
SELECT s.name FROM unnest($1::bigint[]) WITH ORDINALITY AS k (id, place) JOIN recollect_sessions s USING (id)
 ORDER BY k.place"""

DESCRIBE = f"""
SELECT {_LAST}, s.floor, s.expires_at IS NOT NULL, coalesce(s.expires_at <= clock_timestamp(), false),
       extract(epoch FROM s.created_at)::float8, extract(epoch FROM s.updated_at)::float8,
       CASE WHEN a.ctid IS NOT NULL THEN coalesce(CASE WHEN a.session_id = s.id THEN a.metadata END, '') END
  FROM recollect_sessions s LEFT JOIN recollect_about a ON a.session_id = s.id
 WHERE sha256(s.name) = sha256($1)"""

# ---- changes; the last two arguments of the functions are the commit mode and the settings

RETRACT = _unless_behind("recollect_retract", 8)
REPLACE = _unless_behind("recollect_replace", 11)
ANNOTATE = _unless_behind("recollect_annotate", 9)
FORK = _unless_behind("recollect_fork", 10)
APPEND_ALL = _unless_behind("recollect_append_all", 11)
NOTHING_THERE, NO_MESSAGE, TAKEN = 4, 5, 6

FIND = f"""
SELECT m.sequence, m.record, s.floor FROM recollect_sessions s JOIN recollect_messages m ON m.session_id = s.id
 WHERE sha256(s.name) = sha256($1) AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp()) AND {INTACT}
   AND m.sequence > s.floor AND m.sequence < $3 AND position($2::bytea IN m.record) > 0
 ORDER BY m.sequence DESC LIMIT 100"""

# ---- forgetting and freeing

FORGET = _unless_behind("recollect_forget", 5)
FREE = "SELECT recollect_free($1, $2)"
ROWS_FREED_MAX = 10_000
"""Rows deleted in one transaction."""

TRACE = "name >= '\\xff'::bytea AND last = 0"
"""Rows that are no session's, but what stays of one that was erased (`recollect.erasure`): `NO_ID` and the digest."""
LEAVE_TRACE = """
INSERT INTO recollect_sessions (name, last, updated_at) VALUES ($1, 0, clock_timestamp())
ON CONFLICT (sha256(name)) DO UPDATE SET updated_at = excluded.updated_at"""
DROP_TRACES = f"""
DELETE FROM recollect_sessions WHERE id IN (
    SELECT id FROM recollect_sessions WHERE {TRACE} AND (updated_at < clock_timestamp() - $1::interval OR id IN (
        SELECT id FROM recollect_sessions WHERE {TRACE} ORDER BY updated_at DESC OFFSET $2))
       FOR UPDATE SKIP LOCKED)"""
ERASED_AGO = """
SELECT extract(epoch FROM clock_timestamp() - updated_at)::float8 FROM recollect_sessions
 WHERE sha256(name) = sha256($1)"""

EXPIRE = f"""
WITH ended AS (
    UPDATE recollect_sessions SET floor = last, marked = false WHERE id IN (
        SELECT s.id FROM recollect_sessions s
         WHERE s.id > $1 AND s.floor < s.last AND s.expires_at <= clock_timestamp() AND {INTACT_ROW}
         ORDER BY s.id LIMIT 500 FOR UPDATE SKIP LOCKED
    ) RETURNING id
), unsaid AS (DELETE FROM recollect_about WHERE session_id IN (SELECT id FROM ended))
SELECT id FROM ended"""

FREEABLE = f"""
SELECT s.id FROM recollect_sessions s WHERE s.id > $1 AND s.freed < s.floor AND {INTACT_ROW} ORDER BY s.id LIMIT 500"""
