"""Rows in one SQLite file, which may be the file of the conversation store.

Transactions run as in the store (`SqliteTransactions`). Numbers are taken inside ``BEGIN IMMEDIATE``, so they are in
commit order. What is forgotten is overwritten in the file, not merely unlinked (``secure_delete``).
"""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recollect.aside import aside
from recollect.bounds import INTEGER_MAX
from recollect.erasure import Unreached
from recollect.errors import EngineUnavailable, NotWritten, OutcomeUnknown, RecollectError, Unreadable
from recollect.recall.rows import (
    Change,
    MemoryWrite,
    Row,
    Space,
    Written,
    check_cursor,
    forgotten_key,
    moved_away,
    repeated,
)
from recollect.store import Options
from recollect.stores.sqlite.erasing import rewrite_file
from recollect.stores.sqlite.file import (
    ChosenPolicy,
    any_text,
    check_columns,
    check_together,
    choose_policy,
    opening,
    parse_url,
    prepare_file,
    until,
)
from recollect.stores.sqlite.transactions import INLINE_ROWS_MAX, SqliteTransactions

SCHEMA_VERSION = 1

FORGOTTEN_AT_ONCE = 1_000
"""Rows in one transaction: about ten milliseconds."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS recall_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recall_memories (
    sequence INTEGER PRIMARY KEY,
    user BLOB NOT NULL,
    turn BLOB,
    part INTEGER NOT NULL,       -- place within its turn
    forgotten INTEGER,           -- the number at which it was forgotten; record and vector are then empty
    space INTEGER NOT NULL,
    record BLOB NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS recall_by_user ON recall_memories (user) WHERE forgotten IS NULL;
CREATE INDEX IF NOT EXISTS recall_by_forgotten ON recall_memories (forgotten) WHERE forgotten IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS recall_by_turn ON recall_memories (user, turn, part) WHERE turn IS NOT NULL;
CREATE TABLE IF NOT EXISTS recall_turns (
    user BLOB NOT NULL, turn BLOB NOT NULL, fingerprint BLOB, PRIMARY KEY (user, turn)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recall_cursors (conversation BLOB PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO recall_meta VALUES ('last', '0');
"""

_CHANGES = """
SELECT sequence AS at, sequence, user, vector FROM recall_memories WHERE sequence > :after AND forgotten IS NULL
UNION ALL
SELECT forgotten, sequence, NULL, NULL FROM recall_memories WHERE forgotten > :after
ORDER BY at LIMIT :most"""

_INSERT = """
INSERT INTO recall_memories (sequence, user, turn, part, space, record, vector) VALUES (?, ?, ?, ?, ?, ?, ?)"""

_KNOWN = """
SELECT sequence, fingerprint FROM recall_memories LEFT JOIN recall_turns USING (user, turn)
WHERE user = ? AND turn = ? ORDER BY part"""

_FORGET = "UPDATE recall_memories SET forgotten = ?, record = x'', vector = x'' WHERE sequence = ?"

_COUNT_FORGOTTEN = """
INSERT INTO recall_cursors VALUES (?, 1) ON CONFLICT (conversation) DO UPDATE SET through = through + 1"""

_FIRST_TABLES = frozenset(("recall_meta", "recall_memories", "recall_cursors"))
"""The tables that every release has created, together."""

RowsJob = MemoryWrite | Callable[[sqlite3.Connection], Any]


class SqliteRows(SqliteTransactions[RowsJob]):
    """See `recollect.recall.rows.Rows`. Made by `SqliteRows.open("sqlite:///memory.db", options)`."""

    _CALLED = "memory"
    _THREADS = "recollect-rows"

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options) -> None:
        super().__init__(path, policy, options)
        self.identity: str = self._writer.execute(
            "SELECT value FROM recollect_meta WHERE name = 'identity'"
        ).fetchone()[0]

    @classmethod
    async def open(cls, url: str, options: Options) -> "SqliteRows":
        path, asked = parse_url(url)
        rows = await aside(_open, cls, path, asked, options)
        rows._owner.take_loop()
        return rows

    # ---- writing

    async def write(self, write: MemoryWrite) -> Written:
        written: Written = await self._submit(write)
        return written

    async def settled(self) -> None:
        """Nothing is seen before it is."""

    async def forget(self, user: bytes, sequences: Sequence[int] | None) -> int:
        if sequences is not None:
            return int(await self._submit(partial(_forget_these, user=user, sequences=set(sequences))))
        deadline = time.monotonic() + self._timeout_s
        count = 0
        while True:
            portion = int(await self._submit(partial(_forget_some, user=user)))
            count += portion
            if portion < FORGOTTEN_AT_ONCE:
                return count
            if time.monotonic() > deadline:
                raise OutcomeUnknown(f"{count:,} memories are forgotten, and there are more", "forget again")

    async def erase(self) -> tuple[list[str], list[Unreached]]:
        self._check_open(NotWritten)
        self._check(self._guard.harm_before_read())
        erased = await aside(rewrite_file, self._path, self._policy, self._timeout_s)
        self._check_open(NotWritten)
        self._check(self._guard.harm_before_read())
        return erased

    async def probe(self) -> None:
        # A new value each time: SQLite skips an update that changes nothing.
        await self._submit(
            lambda connection: (
                connection.execute(
                    "INSERT OR REPLACE INTO recall_meta VALUES ('probed', ?)", (repr(time.time()),)
                ).rowcount
            )
        )

    async def move(self, space: Space) -> None:
        content = json.dumps({"number": space.number, "name": space.name, "dimension": space.dimension})
        await self._submit(
            lambda connection: (
                connection.execute(
                    "UPDATE recall_meta SET value = ? WHERE name = 'space'", (content,)
                ).rowcount
            )
        )

    async def restate(self, vectors: Sequence[tuple[int, bytes]], space: int) -> None:
        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE recall_memories SET vector = ?, space = ? WHERE sequence = ? AND forgotten IS NULL",
                [(vector, space, sequence) for sequence, vector in vectors],
            )

        await self._submit(job)

    async def space(self, name: str, dimension: int) -> Space:
        content = json.dumps({"number": 1, "name": name, "dimension": dimension})

        def job(connection: sqlite3.Connection) -> str:
            connection.execute("INSERT OR IGNORE INTO recall_meta VALUES ('space', ?)", (content,))
            return str(connection.execute("SELECT value FROM recall_meta WHERE name = 'space'").fetchone()[0])

        return Space(**json.loads(await self._submit(job)))

    # ---- reading

    async def changes(self, after: int, limit: int) -> list[Change]:
        rows = await self._read(
            lambda connection: connection.execute(_CHANGES, {"after": after, "most": limit}).fetchall(),
            inline=limit <= INLINE_ROWS_MAX,
        )
        return [Change(*row) for row in rows]

    async def scan(self, user: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
        return await self._read(
            lambda connection: connection.execute(
                "SELECT sequence, vector FROM recall_memories "
                "WHERE user = ? AND forgotten IS NULL AND sequence > ? ORDER BY sequence LIMIT ?",
                (user, after, limit),
            ).fetchall()
        )

    async def fetch(self, user: bytes, sequences: Sequence[int]) -> list[Row]:
        marks = ",".join("?" * len(sequences))
        statement = (
            "SELECT sequence, user, record, vector FROM recall_memories "
            f"WHERE sequence IN ({marks}) AND user = ? AND forgotten IS NULL"
        )
        return await self._rows(statement, (*sequences, user), inline=len(sequences) <= INLINE_ROWS_MAX)

    async def newest(self, user: bytes, before: int | None, limit: int) -> list[Row]:
        statement = (
            "SELECT sequence, user, record, vector FROM recall_memories "
            "WHERE user = ? AND forgotten IS NULL AND sequence < ? ORDER BY sequence DESC LIMIT ?"
        )
        return await self._rows(
            statement,
            (user, INTEGER_MAX if before is None else before, limit),
            inline=limit <= INLINE_ROWS_MAX,
        )

    async def held(self, user: bytes, limit: int) -> int:
        statement = (
            "SELECT count(*) FROM "
            "(SELECT 1 FROM recall_memories WHERE user = ? AND forgotten IS NULL LIMIT ?)"
        )
        rows = await self._read(
            lambda connection: connection.execute(statement, (user, limit)).fetchall(), inline=limit <= 1000
        )
        return int(rows[0][0])

    async def totals(self) -> tuple[int, int]:
        statement = (
            "SELECT (SELECT value FROM recall_meta WHERE name = 'last'), "
            "(SELECT count(*) FROM recall_memories WHERE forgotten IS NULL)"
        )
        rows = await self._read(lambda connection: connection.execute(statement).fetchall())
        return int(rows[0][0]), int(rows[0][1])

    async def sample(self, points: Sequence[int]) -> list[Row]:
        statement = (
            "SELECT sequence, user, record, vector FROM recall_memories "
            "WHERE sequence >= ? AND forgotten IS NULL ORDER BY sequence LIMIT 1"
        )
        found = [await self._rows(statement, (point,)) for point in points]
        return [row for rows in found for row in rows]

    async def strays(self, space: int, limit: int) -> list[Row]:
        statement = (
            "SELECT sequence, user, record, vector FROM recall_memories "
            "WHERE space <> ? AND forgotten IS NULL ORDER BY sequence LIMIT ?"
        )
        return await self._rows(statement, (space, limit))

    async def summarised(self, user: bytes, conversation: bytes) -> tuple[int, int]:
        return await self._read(lambda connection: _cursors(connection, user, conversation), inline=True)

    # ---- inside the write transaction

    def _write(self, connection: sqlite3.Connection, write: MemoryWrite) -> Written:
        """Every check comes before the first change, so that a failed write leaves the rest of the batch intact."""
        if write.turn is not None:
            known = connection.execute(_KNOWN, (write.user, write.turn)).fetchall()
            if known:
                answer = repeated([row[0] for row in known], known[0][1], write, self.durability)
                # A commit that changes something syncs everything before it, so the first write becomes as durable.
                connection.execute(
                    "INSERT OR REPLACE INTO recall_meta VALUES ('repeated', ?)", (str(known[0][0]),)
                )
                return answer
        found = _space_number(connection)
        if found != write.space:
            raise moved_away(write.space, found)
        if write.cursor is not None:
            check_cursor(write.cursor, *_cursors(connection, write.user, write.cursor.conversation))
            connection.execute(
                "INSERT OR REPLACE INTO recall_cursors VALUES (?, ?)",
                (write.cursor.conversation, write.cursor.through),
            )
        last = _last(connection)
        numbers = list(range(last + 1, last + 1 + len(write.drafts)))
        for part, (number, draft) in enumerate(zip(numbers, write.drafts, strict=True)):
            values = (number, write.user, write.turn, part, write.space, draft.record, draft.vector)
            connection.execute(_INSERT, values)
        if write.turn is not None and numbers:
            connection.execute(
                "INSERT OR REPLACE INTO recall_turns VALUES (?, ?, ?)",
                (write.user, write.turn, write.fingerprint),
            )
        _advance(connection, last + len(numbers))
        return Written(numbers, self.durability)

    # ---- running transactions

    def _outcome(self, job: RowsJob, connection: sqlite3.Connection) -> Any:
        try:
            return self._write(connection, job) if isinstance(job, MemoryWrite) else job(connection)
        except RecollectError as error:
            return error

    async def _rows(self, statement: str, values: Sequence[Any], *, inline: bool = False) -> list[Row]:
        found = await self._read(
            lambda connection: connection.execute(statement, tuple(values)).fetchall(), inline=inline
        )
        return [Row(*row) for row in found]

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.execute("PRAGMA secure_delete = ON")
        connection.text_factory = any_text
        return connection


def _cursors(connection: sqlite3.Connection, user: bytes, conversation: bytes) -> tuple[int, int]:
    """See `Rows.summarised`."""
    keys = (conversation, forgotten_key(user))
    known = dict(
        connection.execute(
            "SELECT conversation, through FROM recall_cursors WHERE conversation IN (?, ?)", keys
        )
    )
    return known.get(keys[0], 0), known.get(keys[1], 0)


def _forget_some(connection: sqlite3.Connection, user: bytes) -> int:
    connection.execute(_COUNT_FORGOTTEN, (forgotten_key(user),))
    statement = "SELECT sequence FROM recall_memories WHERE user = ? AND forgotten IS NULL LIMIT ?"
    return _forget(connection, connection.execute(statement, (user, FORGOTTEN_AT_ONCE)).fetchall())


def _forget_these(connection: sqlite3.Connection, user: bytes, sequences: set[int]) -> int:
    statement = "SELECT sequence FROM recall_memories WHERE sequence = ? AND user = ? AND forgotten IS NULL"
    found = [row for sequence in sequences for row in connection.execute(statement, (sequence, user))]
    return _forget(connection, found)


def _forget(connection: sqlite3.Connection, found: list[tuple[int]]) -> int:
    last = _last(connection)
    for number, (sequence,) in enumerate(found, last + 1):
        connection.execute(_FORGET, (number, sequence))
    _advance(connection, last + len(found))
    return len(found)


def _last(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM recall_meta WHERE name = 'last'").fetchone()[0])


def _advance(connection: sqlite3.Connection, last: int) -> None:
    connection.execute("UPDATE recall_meta SET value = ? WHERE name = 'last'", (str(last),))


def _space_number(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM recall_meta WHERE name = 'space'").fetchone()
    return 0 if row is None else int(json.loads(row[0])["number"])


def _open(kind: type[SqliteRows], path: Path, asked: str | None, options: Options) -> SqliteRows:
    policy = choose_policy(asked, options, path)
    deadline = time.monotonic() + options.timeout_s
    with opening(path):
        prepare_file(path, policy, options.file_mode, deadline)
        connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            connection.execute(f"PRAGMA synchronous = {policy.synchronous}")
            _prepare(connection, path, deadline)
        finally:
            connection.close()
        opened: list[SqliteRows] = []
        if not until(deadline, lambda: opened.append(kind(path, policy, options))):
            raise EngineUnavailable(f"{path} is locked by another process")
    return opened[0]


def _prepare(connection: sqlite3.Connection, path: Path, deadline: float) -> None:
    if not until(deadline, lambda: connection.execute("BEGIN IMMEDIATE")):
        raise EngineUnavailable(f"{path} is locked by another process")
    check_together(connection, path, _FIRST_TABLES)
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    check_columns(connection, path, _SCHEMA)
    connection.execute("INSERT OR IGNORE INTO recall_meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
    (version,) = connection.execute("SELECT value FROM recall_meta WHERE name = 'schema'").fetchone()
    if int(version) > SCHEMA_VERSION:
        connection.execute("ROLLBACK")
        raise Unreadable(
            f"{path}: its long-term memory was written by a newer release (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade recollect"
        )
    if not until(deadline, lambda: connection.execute("COMMIT")):
        raise EngineUnavailable(f"{path} is locked by another process")
