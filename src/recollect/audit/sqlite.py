"""A SQLite file, as an audit reads it: nothing is written, and no lock is held longer than a piece takes.

Even a read-only connection creates the log's shared memory beside a file in WAL mode, if there is none. So a file that
nobody has open is not opened there: without a log beside it, it is read as `immutable`, which touches nothing at all;
with one (its process was killed, or it was restored), from a private copy of both. If somebody opens the file
meanwhile, which shows in the log and the file's header, the last read is repeated with an ordinary connection.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recollect.audit.finding import AuditFinding
from recollect.audit.session_reading import SessionPiece, lost_turns, metadata_findings
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
from recollect.errors import CannotOpen, EngineUnavailable, Refused, Unreadable
from recollect.raw_reading import first_bytes
from recollect.stores.sqlite.file import COMPATIBILITY, POLICIES, any_text, is_locked, parse_url, until
from recollect.stores.sqlite.rows import SEQUENCE_MAX, Session, is_intact, is_odd

Read = TypeVar("Read")

WAL_VERSION = 2
SPARE = 1.1
"""How much room a copy needs, as a multiple of the file's size."""

_SESSION = f"""
SELECT id, floor, ended, expires_at, {{marked}}, (
    SELECT place & {SEQUENCE_MAX} FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX} ORDER BY place DESC LIMIT 1),
    {{checked}}, {{times}}
FROM recollect_sessions s WHERE id = ? AND key = ?"""
_WRITTEN = f"""(
    SELECT written FROM recollect_messages
    WHERE place BETWEEN (s.id << 32) + s.floor + 1 AND (s.id << 32) + {SEQUENCE_MAX} ORDER BY place DESC LIMIT 1)"""
_ROWS = "SELECT place, record FROM recollect_messages WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"
_TORN = "SELECT first, last FROM recollect_turns WHERE session = ? AND first <= ? AND last > ? LIMIT 1"
_LATEST_TURN = """
SELECT first, last FROM recollect_turns WHERE session = ? AND typeof(last) = 'integer' ORDER BY last DESC LIMIT 1"""
_TURNS = "SELECT count(*), min(number), max(number) FROM recollect_turns WHERE session = ?"
# Of turns that were pruned, a release without fingerprints leaves some behind.
_WITHOUT_TURN = """
SELECT count(*) FROM recollect_fingerprints WHERE session = :session
AND first NOT IN (SELECT first FROM recollect_turns WHERE session = :session)
AND (:kept_all OR first > (SELECT first FROM recollect_turns WHERE session = :session ORDER BY number LIMIT 1))"""
_METADATA = "SELECT metadata FROM recollect_about WHERE session = ?"
_OVER = "SELECT first, last FROM recollect_turns WHERE session = ? AND first <= ? AND last >= ? LIMIT 100"
_NEXT_SESSION_OF_MESSAGES = """
SELECT place >> 32, EXISTS (SELECT 1 FROM recollect_sessions WHERE id = place >> 32)
FROM recollect_messages WHERE place >= ? ORDER BY place LIMIT 1"""
_NEXT_SESSION_OF = """
SELECT session, EXISTS (SELECT 1 FROM recollect_sessions WHERE id = session)
FROM {table} WHERE session > ? ORDER BY session LIMIT 1"""


class SqliteAudit:
    engine = "sqlite"

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._unopened = False
        """Whether nobody has the file open, as far as can be seen; then neither do we."""
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._seen: tuple[Any, ...] = ()
        self.place = str(path)
        self.identity: str | None = None
        self.total: int | None = None
        self._statement = ""
        self._tables: set[str] = set()

    @classmethod
    async def open(cls, url: str, timeout_s: float) -> SqliteAudit:
        _, policy = parse_url(url)
        if policy is not None and policy not in POLICIES:
            raise Refused(f"policy {policy!r}: one of {', '.join(POLICIES)}")
        audit = cls(file_of(url), timeout_s)
        try:
            await audit._read(audit._look)
        except BaseException:
            await audit.close()
            raise
        return audit

    async def close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    # ---- what an audit asks

    async def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        above = int(cursor or -1)
        query = "SELECT id, key FROM recollect_sessions WHERE id > ? ORDER BY id LIMIT ?"
        while rows := await self._read(partial(_all, query, (above, BATCH))):
            above = rows[-1][0]
            refs = [SessionRef(key, number) for number, key in rows if isinstance(key, bytes)]
            odd = tuple(_odd_key(number, key) for number, key in rows if not isinstance(key, bytes))
            yield SessionBatch(str(above), refs, odd)

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        return await self._read(lambda reader: self._piece(reader, ref, after))

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        found = await self._read(lambda reader: reader.execute(_OVER, (ref.number, last, first)).fetchall())
        return [(begin, end) for begin, end in found if type(begin) is type(end) is int]

    async def number_of(self, key: bytes) -> int | None:
        query = "SELECT id FROM recollect_sessions WHERE key = ?"
        row = await self._read(lambda reader: reader.execute(query, (key,)).fetchone())
        return None if row is None else int(row[0])

    async def position(self, key: bytes) -> int:
        def ask(reader: sqlite3.Connection) -> int:
            row = reader.execute("SELECT id FROM recollect_sessions WHERE key = ?", (key,)).fetchone()
            if row is None:
                return 0
            found = Session(*reader.execute(self._statement, (row[0], key)).fetchone()[:7])
            return int(found.last)

        return await self._read(ask)

    async def facts(self) -> EngineFacts:
        found = self._path.stat()
        await self._read(self._look)
        return EngineFacts(self.identity, f"{found.st_dev}:{found.st_ino}", 0.0)

    async def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        above = -(2**63)
        while row := await self._read(partial(_one, _NEXT_SESSION_OF_MESSAGES, (above,))):
            number, known = row
            yield 1, [] if known else [_orphaned("messages", number)]
            above = (number + 1) << 32
        for table in sorted(self._tables & {"recollect_turns", "recollect_fingerprints", "recollect_about"}):
            number = -1
            query = _NEXT_SESSION_OF.format(table=table)
            while row := await self._read(partial(_one, query, (number,))):
                number, known = row
                yield 1, [] if known else [_orphaned(table.removeprefix("recollect_"), number)]
        for table in sorted(self._tables):
            yield 1, await self._check(table)

    # ---- how

    async def _check(self, table: str) -> list[AuditFinding]:
        """Checks the table's structure, and its indexes against its rows; in a thread, because it takes a while."""
        said = await self._read(
            lambda reader: reader.execute(f"PRAGMA integrity_check({table})").fetchall(), aside=True
        )
        return [
            AuditFinding(name="index", sentence=f"{table}: {' '.join(str(line).split())[:200]}")
            for (line,) in said
            if line != "ok"
        ]

    def _look(self, reader: sqlite3.Connection) -> None:
        (version,) = reader.execute("PRAGMA user_version").fetchone()
        if version > COMPATIBILITY:
            raise CannotOpen(f"{self._path} was written by a newer release; upgrade recollect")
        names = reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._tables = {name for (name,) in names if str(name).startswith("recollect_")}
        missing = {
            "recollect_sessions",
            "recollect_messages",
            "recollect_turns",
            "recollect_meta",
        } - self._tables
        if missing and not self._tables:
            raise NothingThere(f"{self._path} is no memory of recollect: it has no table {min(missing)}")
        if missing:
            raise Unreadable(
                f"{self._path}: the table {min(missing)} is gone; others of recollect's are there"
            )
        columns = {name for _, name, *_ in reader.execute("PRAGMA table_info(recollect_sessions)")}
        dated = any(
            name == "written" for _, name, *_ in reader.execute("PRAGMA table_info(recollect_messages)")
        )
        times = [*sorted(columns & {"created", "changed"}), *([_WRITTEN] if dated else [])]
        self._statement = _SESSION.format(  # an older release made fewer columns
            marked="marked" if "marked" in columns else "1",
            checked="checked" if "checked" in columns else "NULL",
            times=", ".join(times) or "NULL",
        )
        row = reader.execute("SELECT value FROM recollect_meta WHERE name = 'identity'").fetchone()
        self.identity = None if row is None else str(row[0])
        (self.total,) = reader.execute("SELECT count(*) FROM recollect_sessions").fetchone()

    def _piece(self, reader: sqlite3.Connection, ref: SessionRef, after: int) -> SessionPiece | None:
        session = name_of(ref.key)
        row = reader.execute(self._statement, (ref.number, ref.key)).fetchone()
        if row is None:
            return None
        found, times = Session(*row[:7]), row[7:]
        now = time.time()
        if is_odd(found):
            odd = AuditFinding(
                name="counters", session=session, sentence=f"the session's row holds {row[:7]!r}"[:200]
            )
            return SessionPiece(0, 0, [], True, claims=(odd,))
        claims: list[AuditFinding] = []
        ahead_s = max((when - now for when in times if isinstance(when, int | float)), default=0.0)
        if ahead_s > CLOCK_SLACK_S:
            claims.append(_ahead(session, ahead_s))
        by_hand = [] if found.checked is not None else self._by_hand(reader, session, found, times, now)
        if not is_intact(found, ref.key):
            told = "the session's row is not what was written: which messages are its own is not known"
            claims.append(AuditFinding(name="checksum", session=session, sentence=told))
        elif found.expired(now):
            over = "the session is over, and its messages are still in the file"
            expired = AuditFinding(name="expired", session=session, sentence=over)
            return SessionPiece(0, 0, [], True, claims=(*by_hand, expired))
        claims += by_hand
        floor, last = found.floor, found.last
        base = ref.number << 32
        rows = reader.execute(_ROWS, (base + max(floor, after) + 1, base + last, PIECE)).fetchall()
        turn = reader.execute(_LATEST_TURN, (ref.number,)).fetchone()
        if turn is not None and type(turn[1]) is int and turn[1] > last:
            claims.append(
                AuditFinding(
                    name="gap",
                    session=session,
                    sentence=f"the last turn has messages {turn[0]} to {turn[1]}, and the session ends at {last}",
                    first=last + 1,
                    last=turn[1],
                )
            )
        ended = len(rows) < PIECE
        if ended:
            claims += self._lost_turns(reader, session, ref.number)
        records = [(place & SEQUENCE_MAX, record) for place, record in rows]
        about = () if after else metadata_findings(session, self._metadata(reader, ref.number))
        return SessionPiece(
            last, floor, records, ended, marked=bool(found.marked), claims=tuple(claims), about=about
        )

    def _metadata(self, reader: sqlite3.Connection, number: int) -> object:
        if "recollect_about" not in self._tables:
            return None
        row = reader.execute(_METADATA, (number,)).fetchone()
        return None if row is None else row[0]

    def _lost_turns(self, reader: sqlite3.Connection, session: str, number: int) -> list[AuditFinding]:
        """Turns are numbered, and each has a fingerprint, except those of older releases."""
        count, oldest, newest = reader.execute(_TURNS, (number,)).fetchone()
        lost = newest - oldest + 1 - count if type(oldest) is type(newest) is int else 0
        if "recollect_fingerprints" in self._tables:
            asked = {"session": number, "kept_all": not count or oldest == 1}
            lost = max(lost, reader.execute(_WITHOUT_TURN, asked).fetchone()[0])
        return [lost_turns(session, lost)] if lost else []

    def _by_hand(
        self, reader: sqlite3.Connection, session: str, found: Session, times: tuple[object, ...], now: float
    ) -> list[AuditFinding]:
        """What a row without a checksum says that no store writes: somebody has changed it with SQL."""
        odd = []
        torn = reader.execute(_TORN, (found.id, found.floor, found.floor)).fetchone()
        if torn is not None:
            told = f"the session begins after message {found.floor}, within the turn of messages {torn[0]} to {torn[1]}"
            odd.append(
                AuditFinding(
                    name="half-turn",
                    session=session,
                    sentence=f"{told}: something else has changed that",
                    first=torn[0],
                    last=found.floor,
                )
            )
        latest = max((when for when in times if isinstance(when, int | float)), default=now)
        if found.expires_at is not None and found.expires_at + CLOCK_SLACK_S < latest <= now + CLOCK_SLACK_S:
            over_s = latest - found.expires_at
            told = f"it expired {over_s:,.0f} s before its last change: something else has set that time"
            odd.append(AuditFinding(name="expiry", session=session, sentence=told))
        return odd

    async def _read(self, ask: Callable[[sqlite3.Connection], Read], *, aside: bool = False) -> Read:
        """The answer, from one snapshot; asked again with an ordinary connection if the file turns out to be in use."""
        while True:
            reader = self._reader()
            before = _state(self._path)
            try:
                answer = (
                    await asyncio.to_thread(self._snapshot, reader, ask)
                    if aside
                    else self._snapshot(reader, ask)
                )
            except sqlite3.Error as error:
                if not (self._unopened and self._changed(before)):
                    raise self._failed(error) from error
                continue
            if not (self._unopened and self._changed(before)):
                return answer

    def _snapshot(self, reader: sqlite3.Connection, ask: Callable[[sqlite3.Connection], Read]) -> Read:
        def begin() -> object:
            reader.execute("BEGIN")
            return reader.execute(
                "SELECT 1 FROM sqlite_master LIMIT 1"
            ).fetchone()  # BEGIN alone takes no snapshot

        def attempt() -> None:
            try:
                begin()
            except sqlite3.Error:
                self._end(reader)
                raise

        if not until(time.monotonic() + self._timeout_s, attempt):
            raise EngineUnavailable(f"{self._path} was locked by another process for {self._timeout_s:g} s")
        try:
            return ask(reader)
        finally:
            self._end(reader)

    def _end(self, reader: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if reader.in_transaction:
                reader.execute("COMMIT")

    def _reader(self) -> sqlite3.Connection:
        if self._unopened:
            self._changed(self._seen)
        while self._connection is None:
            self._seen = _state(self._path)
            log_bytes, has_shared = self._seen[:2]
            self._unopened = _is_wal(self._path) and not has_shared
            if not self._unopened:
                self._connection = self._connected(self._path, "mode=ro")
            elif not log_bytes:
                self._connection = self._connected(self._path, "mode=ro&immutable=1")
            else:
                copy = self._copied()
                if not self._changed(self._seen):
                    self._connection = self._connected(copy, "mode=ro")
        return self._connection

    def _connected(self, path: Path, how: str) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                f"{path.as_uri()}?{how}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error
        connection.text_factory = any_text
        return connection

    def _copied(self) -> Path:
        """The file and its log, in a folder that only we have."""
        self._copy = tempfile.TemporaryDirectory(prefix="recollect-audit-")
        real, folder = self._path.resolve(), Path(self._copy.name)
        check_room(real, folder)
        try:
            for name in (real.name, f"{real.name}-wal"):
                shutil.copyfile(real.with_name(name), folder / name)
        except OSError as error:
            raise CannotOpen(f"{self._path}: {error.strerror}") from error
        return folder / real.name

    def _changed(self, before: object) -> bool:
        """Whether somebody has opened the file since; then the connection is no longer usable."""
        if _state(self._path) == before:
            return False
        self._let_go()
        return True

    def _failed(self, error: sqlite3.Error) -> Exception:
        if is_locked(error):
            return EngineUnavailable(f"{self._path} is locked by another process")
        if isinstance(error, sqlite3.OperationalError):
            return CannotOpen(f"{self._path}: {error}; is there an interrupted transaction beside it?")
        return Unreadable(f"{self._path}: {error}")


def file_of(url: str) -> Path:
    """The file of an address, which has to exist."""
    path, _ = parse_url(url)
    if not path.is_file():
        why = "Not a regular file" if path.exists() else "there is no such file"
        raise NothingThere(f"sqlite:///{path}: {why}")
    return path


def check_room(path: Path, folder: Path) -> None:
    """For a copy of the file and its log in the folder."""
    log = path.with_name(f"{path.name}-wal")
    size = path.stat().st_size + (log.stat().st_size if log.exists() else 0)
    needed, free = SPARE * size, shutil.disk_usage(folder).free
    if needed > free:
        raise Refused(
            f"{path} is read as a copy, and {folder.parent} has no room for it: {free:,} bytes free, {needed:,.0f} "
            "needed; set TMPDIR to a larger filesystem"
        )


async def copied(url: str, to: Path, timeout_s: float) -> str:
    """Copies the file as it is at one moment, also beside writers, and returns SQLite's version."""
    source = SqliteAudit(file_of(url), timeout_s)

    def copy(reader: sqlite3.Connection) -> None:
        to.unlink(missing_ok=True)
        with closing(sqlite3.connect(to)) as target:
            reader.backup(target)

    try:
        await source._read(copy, aside=True)
    finally:
        await source.close()
    return sqlite3.sqlite_version


def _all(query: str, arguments: tuple[int, ...], reader: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return reader.execute(query, arguments).fetchall()


def _one(query: str, arguments: tuple[int, ...], reader: sqlite3.Connection) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = reader.execute(query, arguments).fetchone()
    return row


def _state(path: Path) -> tuple[Any, ...]:
    """What changes when somebody opens the file for writing: a log or its shared memory appears, the file's header
    changes. Behind a link, SQLite has them beside what the link names."""
    real = path.resolve()
    wal, shared = real.with_name(f"{real.name}-wal"), real.with_name(f"{real.name}-shm")
    with suppress(OSError):
        found = path.stat()
        return (
            wal.stat().st_size if wal.exists() else None,
            shared.exists(),
            first_bytes(path, 100),
            found.st_size,
            found.st_mtime_ns,
        )
    return (None, False)


def _is_wal(path: Path) -> bool:
    header = first_bytes(path, 20)
    return len(header) > 18 and header[18] == WAL_VERSION


def _orphaned(what: str, number: int) -> AuditFinding:
    return AuditFinding(
        name="orphaned",
        sentence=f"{what} of session number {number}, and no session has that number",
        first=number,
    )


def _odd_key(number: int, key: object) -> AuditFinding:
    return AuditFinding(
        name="unreadable",
        sentence=f"session number {number} has an id that is not one: {key!r}"[:200],
        first=number,
    )


def _ahead(session: str, seconds: float) -> AuditFinding:
    return AuditFinding(
        name="clock",
        session=session,
        sentence=f"changed {seconds:,.0f} s in the future, by this machine's clock",
    )
