"""Stores that rewrite what they keep whenever they are opened: in place, which a crash in the middle does not survive,
or aside.

Nothing is lost in any crash of the run itself: it takes a second crash, while the store is opened after the first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.faults.line_files import LineFiles
from tests.planted import postgres_rows
from tests.planted.postgres_rows import PostgresRows, pool_of
from tests.planted.redis_list import RedisList


async def prepare(endpoint: Endpoint) -> None:
    if endpoint.engine == "postgres":
        await postgres_rows.prepare(endpoint)


class InPlace(LineFiles):
    """Cuts the file and writes it again."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        for path in sorted(self.folder.glob("*.lines")):
            self.rewrite(path, path.read_bytes().rpartition(b"\n")[0] + b"\n")

    def rewrite(self, path: Path, lines: bytes) -> None:
        with path.open("wb") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


class Aside(InPlace):
    """Writes another file, syncs it, and gives it the name."""

    def rewrite(self, path: Path, lines: bytes) -> None:
        new = path.with_suffix(".new")
        super().rewrite(new, lines)
        new.replace(path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class ListInSteps(RedisList):
    """Takes each list out and puts it back, in commands of their own."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        for key in list(self.client.scan_iter("session:*", count=100)):
            self.rewrite(key, self.client.lrange(key, 0, -1))

    def rewrite(self, key: bytes, kept: list[bytes]) -> None:
        self.client.delete(key)
        self.client.rpush(key, *kept)


class ListAtOnce(ListInSteps):
    """The same in one transaction."""

    def rewrite(self, key: bytes, kept: list[bytes]) -> None:
        with self.client.pipeline(transaction=True) as steps:
            steps.delete(key)
            steps.rpush(key, *kept)
            steps.execute()


async def _rewritten(connection: Any) -> None:
    taken = await connection.fetch("DELETE FROM said RETURNING id, session, role, content")
    statement = "INSERT INTO said (session, role, content) VALUES ($1, $2, $3)"
    for row in sorted(taken, key=lambda row: row["id"]):
        await connection.execute(statement, row["session"], row["role"], row["content"])


async def rows_in_steps(endpoint: Endpoint) -> PostgresRows:
    """Each statement is a transaction of its own."""
    pool = await pool_of(endpoint)
    async with pool.acquire() as connection:
        await _rewritten(connection)
    return PostgresRows(pool)


async def rows_at_once(endpoint: Endpoint) -> PostgresRows:
    pool = await pool_of(endpoint)
    async with pool.acquire() as connection, connection.transaction():
        await _rewritten(connection)
    return PostgresRows(pool)


def in_place(endpoint: Endpoint) -> LineFiles:
    return InPlace(endpoint)


def aside(endpoint: Endpoint) -> LineFiles:
    return Aside(endpoint)


def list_in_steps(endpoint: Endpoint) -> RedisList:
    return ListInSteps(endpoint)


def list_at_once(endpoint: Endpoint) -> RedisList:
    return ListAtOnce(endpoint)
