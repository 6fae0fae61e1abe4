"""What a contender is: something that appends one message and reads the last hundred, for a while.

Each gets its message ready made in its own type; turning it into bytes is its work, and only the raw driver is given
bytes. An async contender runs its clients as tasks, a synchronous one as threads, as their users would.
"""

import asyncio
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from recollect import Message
from recollect.message import encode

CLIENTS_MAX = 8
CLIENTS_MANY = 64
"""Only for our stores and the raw drivers: not every peer can have as many connections."""
READ_LAST = 100
FILL_CHUNK = 1_000

TEXT = (
    "The tenant of flat 12 called again about the water in the cellar: it came back after the repair of last "
    "Tuesday, and this time it reaches the meters. She wants to know who comes, when, and what to do now."
)
MESSAGE = Message("user", TEXT, timestamp=1_794_700_000.25)
RECORD = encode(MESSAGE)


@dataclass(frozen=True)
class Place:
    """Where the contenders of one engine live."""

    engine: str
    url: str
    """Of the server; every contender uses the same one, over TCP."""
    folder: Path
    """For the files of an embedded engine."""


def sqlite_note(path: Path) -> str:
    """The durability of a file whose user sets nothing else: the journal is the file's, `synchronous` the default."""
    with closing(sqlite3.connect(path)) as connection:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    same = journal == "wal" and synchronous == 2
    level = ("OFF", "NORMAL", "FULL", "EXTRA")[synchronous]
    return f"{journal.upper()}, synchronous {level}" + ("" if same else ": weaker than WAL with FULL")


class Contender(ABC):
    """Made, opened, filled, measured, closed."""

    name: str
    note: str = ""
    """Where it does less than the others, durability first."""
    shares_sessions: bool = True
    """Whether several clients may append to one session at all."""
    append_clients: frozenset[int] = frozenset({1, CLIENTS_MAX})
    reads: bool = True
    reads_large: bool = True
    """Whether it takes part in reading from the large session, which has to be filled first."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def fill(self, session: str, count: int) -> None:
        """Gives the session `count` messages, in whatever way is quick."""

    @abstractmethod
    async def append_rate(self, sessions: Sequence[str], duration_s: float) -> float:
        """Appends a second, one client for each entry of `sessions`."""

    @abstractmethod
    async def read_rate(self, session: str, duration_s: float) -> float:
        """Reads of the last hundred messages a second, one client."""

    def _check_window(self, found: object) -> None:
        if not isinstance(found, Sized) or len(found) != READ_LAST:
            raise AssertionError(f"{self.name}: read {str(found)[:200]} instead of {READ_LAST} messages")


AsyncStep = Callable[[], Awaitable[object]]
AsyncRead = Callable[[], Awaitable[Sized]]
SyncStep = Callable[[], object]
SyncRead = Callable[[], Sized]
Check = Callable[[object], None]


class AsyncContender(Contender):
    @abstractmethod
    async def appender(self, client: int, session: str) -> AsyncStep: ...

    @abstractmethod
    async def reader(self, session: str) -> AsyncRead: ...

    async def append_rate(self, sessions: Sequence[str], duration_s: float) -> float:
        steps = [await self.appender(client, session) for client, session in enumerate(sessions)]
        if len(steps) == 1:
            return await _async_rate(steps[0], duration_s)
        return sum(await asyncio.gather(*(_async_rate(step, duration_s) for step in steps)))

    async def read_rate(self, session: str, duration_s: float) -> float:
        return await _async_rate(await self.reader(session), duration_s, self._check_window)


class SyncContender(Contender):
    @abstractmethod
    def appender(self, client: int, session: str) -> SyncStep: ...

    @abstractmethod
    def reader(self, session: str) -> SyncRead: ...

    async def append_rate(self, sessions: Sequence[str], duration_s: float) -> float:
        steps = [self.appender(client, session) for client, session in enumerate(sessions)]
        if len(steps) == 1:
            return sync_rate(steps[0], duration_s)
        with ThreadPoolExecutor(len(steps)) as threads:
            return sum(threads.map(lambda step: sync_rate(step, duration_s), steps))

    async def read_rate(self, session: str, duration_s: float) -> float:
        return sync_rate(self.reader(session), duration_s, self._check_window)


# A client's rate ends with its own last answer: a client that waits for a lock past the end of the slice does not
# dilute the others. Only the last answer is checked, outside of the time that is measured.


async def _async_rate(step: AsyncStep, duration_s: float, check: Check | None = None) -> float:
    clock = time.perf_counter
    started = clock()
    deadline = started + duration_s
    count = 0
    answer: object = None
    while (now := clock()) < deadline:
        answer = await step()
        count += 1
    if check is not None:
        check(answer)
    return count / (now - started)


def sync_rate(step: SyncStep, duration_s: float, check: Check | None = None) -> float:
    clock = time.perf_counter
    started = clock()
    deadline = started + duration_s
    count = 0
    answer: object = None
    while (now := clock()) < deadline:
        answer = step()
        count += 1
    if check is not None:
        check(answer)
    return count / (now - started)
