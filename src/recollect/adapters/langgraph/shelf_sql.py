"""What the shelves in SQL have in common: their tables, and the statements that both engines understand.

They are in SQLite's dialect; `for_postgres` translates them. `$1` is a number to PostgreSQL and a name to
SQLite: see `numbered`.
"""

from typing import Any

from recollect.adapters.langgraph.shelf import CheckpointListing

SCHEMA = """
CREATE TABLE IF NOT EXISTS langgraph_checkpoints (
    thread BLOB NOT NULL, namespace BLOB NOT NULL, id BLOB NOT NULL,
    parent BLOB, run BLOB, refs BLOB NOT NULL, checkpoint BLOB NOT NULL, metadata BLOB NOT NULL,
    homes BLOB, inline BLOB, checksum BLOB,
    PRIMARY KEY (thread, namespace, id)
);
CREATE INDEX IF NOT EXISTS langgraph_by_run ON langgraph_checkpoints (run) WHERE run IS NOT NULL;
CREATE TABLE IF NOT EXISTS langgraph_values (
    thread BLOB NOT NULL, namespace BLOB NOT NULL, ref BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (thread, namespace, ref)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS langgraph_writes (
    thread BLOB NOT NULL, namespace BLOB NOT NULL, id BLOB NOT NULL, task BLOB NOT NULL, place INTEGER NOT NULL,
    channel BLOB NOT NULL, path BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (thread, namespace, id, task, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS langgraph_identity (
    one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL, mark BIGINT NOT NULL
)"""

ADDED = ("homes", "inline", "checksum")
"""Columns that earlier editions of `langgraph_checkpoints` did not have."""

IDENTIFY = "INSERT INTO langgraph_identity VALUES (1, $1, 0) ON CONFLICT DO NOTHING"
IDENTITY = "SELECT identity, mark FROM langgraph_identity"
RAISE_MARK = "UPDATE langgraph_identity SET mark = mark + 1"
"""What a witness compares: see `Shelf`."""

TABLES = {
    "langgraph_checkpoints": (
        "namespace, id",
        "parent, run, refs, checkpoint, metadata, homes, inline, checksum",
    ),
    "langgraph_values": ("namespace, ref", "value"),
    "langgraph_writes": ("namespace, id, task, place", "channel, path, value"),
}
"""Each table with its key and its other columns, besides the thread."""

OF_CHECKPOINTS = ("langgraph_checkpoints", "langgraph_writes")
"""The tables whose rows belong to one checkpoint."""

IDS = "SELECT id FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 ORDER BY id"
NAMESPACES = "SELECT DISTINCT namespace FROM langgraph_checkpoints WHERE thread = $1"

ANCESTORS = """
WITH RECURSIVE line (id, parent, depth) AS (
    SELECT id, parent, 0 FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 AND id = $3
    UNION ALL
    SELECT c.id, c.parent, depth + 1 FROM line CROSS JOIN langgraph_checkpoints c
     WHERE c.thread = $1 AND c.namespace = $2 AND c.id = line.parent AND depth + 1 < $4
)
SELECT c.thread, c.namespace, c.id, c.parent, run, refs, checkpoint, metadata, homes, inline, checksum
  FROM line CROSS JOIN langgraph_checkpoints c
 WHERE c.thread = $1 AND c.namespace = $2 AND c.id = line.id
 ORDER BY depth"""
"""A cross join: SQLite reads its tables in the order in which they are written."""


def for_postgres(statement: str) -> str:
    """The statement in PostgreSQL's dialect. References and homes are arrays there, packed values in SQLite."""
    statement = statement.replace("refs BLOB", "refs bytea[]").replace("homes BLOB", "homes bytea[]")
    statement = statement.replace("BLOB", "bytea")
    return statement.replace(" WITHOUT ROWID", "")


def numbered(*values: Any) -> dict[str, Any]:
    """The values of $1, $2, … for SQLite: to Python they are names, and a tuple for names is deprecated."""
    return {str(number): value for number, value in enumerate(values, 1)}


def copying(table: str) -> str:
    """Copies a thread's rows of a table: from $2 to $1, over what is there."""
    key, others = TABLES[table]
    columns = f"{key}, {others}"
    set_others = ", ".join(f"{name} = excluded.{name}" for name in others.split(", "))
    return (
        f"INSERT INTO {table} (thread, {columns}) SELECT $1, {columns} FROM {table} WHERE thread = $2 "
        f"ON CONFLICT (thread, {key}) DO UPDATE SET {set_others}"
    )


def listing_checkpoints(listing: CheckpointListing) -> tuple[str, list[bytes | int]]:
    """The statement of one page, with its values."""
    conditions = ["1 = 1"]
    values: list[bytes | int] = []
    for column, comparison, value in (
        ("thread", "=", listing.thread),
        ("namespace", "=", listing.namespace),
        ("id", "=", listing.id),
        ("id", "<", listing.before),
    ):
        if value is not None:
            values.append(value)
            conditions.append(f"{column} {comparison} ${len(values)}")
    if listing.after is not None:
        values.extend(listing.after)
        last = len(values)
        conditions.append(f"(id, thread, namespace) < (${last - 2}, ${last - 1}, ${last})")
    values.append(listing.limit)
    statement = (
        "SELECT thread, namespace, id, parent, run, refs, checkpoint, metadata, homes, inline, "
        "checksum "
        "FROM langgraph_checkpoints "
        f"WHERE {' AND '.join(conditions)} "
        f"ORDER BY id DESC, thread DESC, namespace DESC LIMIT ${len(values)}"
    )
    return statement, values
