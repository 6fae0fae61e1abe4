"""PostgreSQL, as an audit reads it: one connection and only short read-only transactions, which also work on a standby.

Rows are read twice: by session, through the index, as a store does; and by their place in the table's file, to find
rows that are missing from the index or belong to no session.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import asyncpg

from recollect.audit.finding import AuditFinding
from recollect.audit.session_reading import SessionPiece, metadata_findings
from recollect.audit.source import (
    BATCH,
    CLOCK_SLACK_S,
    PIECE,
    EngineFacts,
    NothingThere,
    SessionBatch,
    SessionRef,
    name_of,
)
from recollect.errors import CannotOpen, EngineUnavailable, Unreadable
from recollect.stores.postgres.errors import DRIVER_ERRORS, read_error
from recollect.stores.postgres.hosts import Connection, connect
from recollect.stores.postgres.schema import INTACT_ROW, RELEASE_SCHEMA, TRACE, read_version

PAGES = 64
"""How many pages of the table's file are read at once: half a megabyte."""

WITH_CHANGES, WITH_CHECKSUMS = 3, 4
"""Schemas that brought columns which are read here."""

_SESSIONS = f"SELECT id, name FROM recollect_sessions WHERE id > $1 AND NOT ({TRACE}) ORDER BY id LIMIT $2"

_PIECE = """
SELECT s.last, s.floor, s.freed, s.turns, {marked}, {intact}, coalesce(s.expires_at <= clock_timestamp(), false),
       extract(epoch FROM {updated} - clock_timestamp())::float8,
       extract(epoch FROM {updated} - s.expires_at)::float8, m.sequence, m.record
  FROM recollect_sessions s
  LEFT JOIN LATERAL (
      SELECT sequence, record FROM recollect_messages
       WHERE session_id = s.id AND sequence > greatest(s.floor, $2) ORDER BY sequence LIMIT $3
  ) m ON true
 WHERE s.id = $1
 ORDER BY m.sequence"""

_TURNS = """
SELECT count(*), (SELECT first FROM recollect_turns WHERE session_id = $1 ORDER BY last DESC LIMIT 1), max(last)
  FROM recollect_turns WHERE session_id = $1"""
_TORN = "SELECT first, last FROM recollect_turns WHERE session_id = $1 AND first <= $2 AND last > $2 LIMIT 1"
_FREED = (
    "SELECT min(sequence), max(sequence) FROM recollect_messages WHERE session_id = $1 AND sequence <= $2"
)
_OVER = """
SELECT first, last FROM recollect_turns WHERE session_id = $1 AND first <= $3 AND last >= $2 ORDER BY first LIMIT 100"""
_HIDDEN_SCHEMAS = r"""
SELECT current_user, nspname FROM pg_namespace
 WHERE nspname = ANY (regexp_split_to_array(replace(current_setting('search_path'), '"', ''), '\s*,\s*'))
   AND NOT has_schema_privilege(oid, 'USAGE')"""
_METADATA = "SELECT metadata FROM recollect_about WHERE session_id = $1"
_FOUND_BY_NAME = "SELECT id FROM recollect_sessions WHERE sha256(name) = sha256($1)"

_SERVER = """
SELECT pg_postmaster_start_time()::text || ' ' || coalesce(inet_server_addr()::text, ''),
       extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8, pg_is_in_recovery()"""

_PAGES = "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::int"
# The rows of some pages, each looked up by its key: OFFSET 0 keeps the planner from turning that into one join.
_UNFOUND = """
SELECT m.session_id, m.sequence,
       EXISTS (SELECT FROM recollect_messages i
                WHERE i.session_id = m.session_id AND i.sequence = m.sequence OFFSET 0) AS indexed,
       EXISTS (SELECT FROM recollect_sessions s WHERE s.id = m.session_id OFFSET 0) AS known
  FROM recollect_messages m WHERE m.ctid >= $1::tid AND m.ctid < $2::tid"""
# The rows of some pages, whether the index leads to this very row, and whether they have a session. A row whose key has
# changed on the disk is in the index under its old one; the index by itself, which PostgreSQL prefers to read, does not
# show it.
_BESIDE = """
SELECT t.session_id, t.ctid = ANY (ARRAY(SELECT i.ctid FROM {table} i WHERE {same_key})) AS indexed,
       EXISTS (SELECT FROM recollect_sessions s WHERE s.id = t.session_id OFFSET 0) AS known
  FROM {table} t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid"""
_SAME_KEY = {
    "recollect_turns": "i.session_id = t.session_id AND i.turn = t.turn",
    "recollect_about": "i.session_id = t.session_id",
}

_UNIQUE = {
    "recollect_sessions": ["sha256(name)"],
    "recollect_messages": ["session_id", "sequence"],
    "recollect_turns": ["session_id", "turn"],
    "recollect_about": ["session_id"],
}
"""What keeps each row from being there twice."""
_INDEXES = """
SELECT ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts) k)
  FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indisready"""


class PostgresAudit:
    engine = "postgres"

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._statement = ""
        self._has_metadata = False
        self.identity: str | None = None
        self.place = ""
        self.total: int | None = None

    @classmethod
    async def open(cls, url: str, timeout_s: float) -> PostgresAudit:
        try:
            connection = await connect(url, time.monotonic() + timeout_s)
        except EngineUnavailable as error:
            if isinstance(error.__cause__, asyncpg.InvalidCatalogNameError):
                raise NothingThere(str(error)) from error
            raise
        audit = cls(connection, timeout_s)
        try:
            await audit._look()
        except DRIVER_ERRORS as error:
            await audit.close()
            raise read_error(error) from error
        except BaseException:
            await audit.close()
            raise
        return audit

    async def close(self) -> None:
        try:
            await self._connection.close(timeout=1.0)
        except DRIVER_ERRORS:
            self._connection.terminate()

    # ---- what an audit asks

    async def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        above = int(cursor or 0)
        while rows := await self._fetch(_SESSIONS, above, BATCH):
            above = rows[-1][0]
            yield SessionBatch(str(above), [SessionRef(name, number) for number, name in rows])

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        try:
            async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                return await self._piece(ref, after)
        except DRIVER_ERRORS as error:
            raise read_error(error) from error

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._fetch(_OVER, ref.number, first, last)]

    async def number_of(self, key: bytes) -> int | None:
        rows = await self._fetch(_FOUND_BY_NAME, key)
        return int(rows[0][0]) if rows else None

    async def position(self, key: bytes) -> int:
        rows = await self._fetch("SELECT last FROM recollect_sessions WHERE sha256(name) = sha256($1)", key)
        return int(rows[0][0]) if rows else 0

    async def facts(self) -> EngineFacts:
        [[present]] = await self._fetch("SELECT to_regclass('recollect_meta') IS NOT NULL")
        if not present:
            await self._check_visible()
        rows = await self._fetch("SELECT identity::text FROM recollect_meta") if present else []
        [[started, ago_s, standby]] = await self._fetch(_SERVER)
        role = "standby" if standby else "primary"
        return EngineFacts(rows[0][0] if rows else None, started, time.time() - ago_s, role=role)

    async def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        """Up to the current sizes of the files: what is added later belongs to sessions already read, or new ones."""
        for table, columns in _UNIQUE.items():
            if table != "recollect_about" or self._has_metadata:
                found = [list(row[0]) for row in await self._fetch(_INDEXES, table)]
                yield 0, [] if columns in found else [_unindexed(table, columns)]
        async for rows in self._pages("recollect_messages", _UNFOUND):
            yield len(rows), [finding for row in rows for finding in _unfound(*row)]
        for table, same_key in _SAME_KEY.items():
            if table == "recollect_about" and not self._has_metadata:
                continue
            what = table.removeprefix("recollect_")
            async for rows in self._pages(table, _BESIDE.format(table=table, same_key=same_key)):
                yield len(rows), [finding for row in rows for finding in _misplaced(what, *row)]

    # ---- how

    async def _look(self) -> None:
        version = await read_version(self._connection, self._timeout_s)
        if version is None:
            await self._check_visible()
            if await self._connection.fetchval("SELECT to_regclass('recollect_messages') IS NOT NULL"):
                raise Unreadable(
                    "tables of a memory are there, and recollect_version or recollect_meta is empty or gone"
                )
            raise NothingThere("there is no memory of recollect in this database and search_path")
        if version.oldest_release_schema > RELEASE_SCHEMA:
            raise CannotOpen(
                f"the memory has schema {version.schema}; this release knows {RELEASE_SCHEMA}: upgrade"
            )
        self.identity = version.identity
        for table in ("recollect_sessions", "recollect_messages", "recollect_turns"):
            if not await self._connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
                raise Unreadable(f"the table {table} is gone; others of recollect's are there")
        current = version.schema >= WITH_CHANGES
        marked, updated = ("s.marked", "s.updated_at") if current else ("true", "NULL::timestamptz")
        intact = INTACT_ROW if version.schema >= WITH_CHECKSUMS else "true"
        self._statement = _PIECE.format(marked=marked, intact=intact, updated=updated)
        self._has_metadata = await self._connection.fetchval(
            "SELECT to_regclass('recollect_about') IS NOT NULL"
        )
        self.total = await self._connection.fetchval(
            f"SELECT count(*) FROM recollect_sessions WHERE NOT ({TRACE})"
        )
        self.place = version.identity  # session ids are the same on every standby

    async def _piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        session = name_of(ref.key)
        rows = await self._connection.fetch(
            self._statement, ref.number, after, PIECE, timeout=self._timeout_s
        )
        if not rows:
            return None
        last, floor, freed, turns, marked, intact, expired, ahead_s, over_s, first_sequence, _ = rows[0]
        odd = _odd_row(
            session, last, floor, over_s or 0.0, intact=intact, dated=(ahead_s or 0.0) <= CLOCK_SLACK_S
        )
        if expired:
            over = AuditFinding(
                name="expired",
                session=session,
                sentence="the session is over, and its messages are still there",
            )
            return SessionPiece(0, 0, [], True, claims=(*odd, *([over] if floor < last else [])))
        records = [] if first_sequence is None else [(row[9], row[10]) for row in rows]
        ended = len(records) < PIECE
        claims = [] if not ended else odd + await self._claims(ref, session, last, floor, freed, turns)
        if ahead_s is not None and ahead_s > CLOCK_SLACK_S:
            told = f"changed {ahead_s:,.0f} s in the future, by the engine's clock"
            claims.append(AuditFinding(name="clock", session=session, sentence=told))
        about = metadata_findings(session, await self._metadata(ref)) if not after and floor < last else ()
        return SessionPiece(last, floor, records, ended, marked=marked, claims=tuple(claims), about=about)

    async def _check_visible(self) -> None:
        """Tables in a schema that the user may not use look as if they were not there."""
        for user, schema in await self._fetch(_HIDDEN_SCHEMAS):
            raise EngineUnavailable(
                f"PostgreSQL: {user} may not use the schema {schema}: GRANT USAGE ON SCHEMA it"
            )

    async def _metadata(self, ref: SessionRef) -> object:
        return await self._connection.fetchval(_METADATA, ref.number) if self._has_metadata else None

    async def _claims(
        self, ref: SessionRef, session: str, last: int, floor: int, freed: int, turns: int
    ) -> list[AuditFinding]:
        """Checks what else the session's row says against the rows, in the same snapshot as the piece."""
        claims: list[AuditFinding] = []

        def claim(name: str, sentence: str, first: int | None = None, end: int | None = None) -> None:
            claims.append(AuditFinding(name=name, session=session, sentence=sentence, first=first, last=end))

        [counted, first, newest] = (await self._connection.fetch(_TURNS, ref.number))[0]
        if counted != turns:
            claim("counters", f"{counted:,} turn ids are there, and the session counts {turns:,}")
        if newest is not None and newest > last:
            claim(
                "counters",
                f"the last turn has messages {first} to {newest}, and the session ends at {last}",
                last + 1,
                newest,
            )
        for begin, end in await self._connection.fetch(_TORN, ref.number, floor):
            told = f"the session begins after message {floor}, within the turn of messages {begin} to {end}"
            claim("half-turn", f"{told}: something else has changed that", begin, floor)
        [low, high] = (await self._connection.fetch(_FREED, ref.number, freed))[0]
        if low is not None:
            claim("orphaned", f"messages {low} to {high} were freed, and are there", low, high)
        found = await self._connection.fetch(_FOUND_BY_NAME, ref.key)
        if [row[0] for row in found] != [ref.number]:
            claim(
                "index", "the index of session ids does not find this session: a store takes it for a new one"
            )
        return claims

    async def _pages(self, table: str, statement: str) -> AsyncIterator[list[asyncpg.Record]]:
        """The rows of a table by their place in its file; the statement looks each of them up."""
        [[pages]] = await self._fetch(_PAGES, table)
        for page in range(0, pages or 0, PAGES):
            try:
                async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                    await self._connection.execute("SET LOCAL enable_seqscan = off")
                    rows = await self._connection.fetch(
                        statement, (page, 0), (page + PAGES, 0), timeout=self._timeout_s
                    )
            except DRIVER_ERRORS as error:
                raise read_error(error) from error
            yield rows

    async def _fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        try:
            async with self._connection.transaction(readonly=True):
                return await self._connection.fetch(statement, *arguments, timeout=self._timeout_s)
        except DRIVER_ERRORS as error:
            raise read_error(error) from error


def _odd_row(
    session: str, last: int, floor: int, over_s: float, *, intact: bool, dated: bool
) -> list[AuditFinding]:
    """What the session's row says that no store writes. Its checksum follows every change that is made with SQL."""
    told = []
    if not intact:
        told.append(
            ("checksum", "the session's row is not what was written: which messages are its own is not known")
        )
    if floor > last:
        told.append(("counters", f"the session begins after message {floor}, and ends at {last}"))
    if dated and floor < last and over_s > CLOCK_SLACK_S:
        told.append(
            ("expiry", f"it expired {over_s:,.0f} s before its last change: something else has set that time")
        )
    return [AuditFinding(name=name, session=session, sentence=sentence) for name, sentence in told]


def _unfound(number: int, sequence: int, indexed: bool, known: bool) -> list[AuditFinding]:
    if not known:
        return [_orphaned("messages", number)]
    if indexed:
        return []
    told = f"message {sequence} of session number {number} is in the table, and its index does not find it"
    return [AuditFinding(name="index", sentence=told, first=number, last=sequence)]


def _misplaced(what: str, number: int | None, indexed: bool, known: bool) -> list[AuditFinding]:
    if number is None or (known and not indexed):
        whose = "no session number" if number is None else f"session number {number}"
        told = (
            f"a row of {what} has {whose}, and its index does not find it there: it has changed on the disk"
        )
        return [AuditFinding(name="index", sentence=told, first=number)]
    return [] if known else [_orphaned(what, number)]


def _unindexed(table: str, columns: list[str]) -> AuditFinding:
    told = f"{table} has no valid unique index on {', '.join(columns)}: it was dropped, or was not finished"
    return AuditFinding(name="index", sentence=told)


def _orphaned(what: str, number: int) -> AuditFinding:
    return AuditFinding(
        name="orphaned",
        sentence=f"{what} of session number {number}, and no session has that number",
        first=number,
    )
