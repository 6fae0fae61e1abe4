"""How transactions run on one SQLite file, for the conversation store and for recall's rows.

Writes that arrive together share one transaction, and so one fsync (`Batcher`). A commit takes a few hundred
microseconds on a good disk, less than handing it to a thread and back would cost, so it runs on the event loop for as
long as commits stay short (`INLINE_MAX_S`) and nobody else holds the lock. Otherwise it runs on a thread of its own,
where waiting hurts nobody. Reads do the same, depending on how many rows they may return.

Every write and read asks the `guard` whether the files are still there; if not, nothing is acknowledged and
`StoreReplaced` is raised.
"""

import asyncio
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from recollect.aside import aside
from recollect.batching import Batcher
from recollect.errors import (
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    StoreClosed,
    StoreReplaced,
    Unreadable,
)
from recollect.owner import Owner, to_its_end
from recollect.slices import too_long
from recollect.store import Durability, Options
from recollect.stores.sqlite.file import CHECKPOINT_PAGES, ChosenPolicy, code_of, is_locked, until
from recollect.stores.sqlite.forking import at_work
from recollect.stores.sqlite.guard import FileGuard

INLINE_MAX_S = 0.002
"""Commits that take longer on average leave the event loop."""

READ_GRACE_S = 0.5
"""How long a read may take to notice that its time is over."""
PROGRESS_STEPS = 20_000
"""SQLite's own instructions between two looks at the clock: about a millisecond."""

INLINE_ROWS_MAX = 200
"""Reads of more rows leave the event loop."""

Job = TypeVar("Job")
"""Runs inside the write transaction. It checks everything before its first write, so a failed job wrote nothing."""

Value = TypeVar("Value")


class SqliteTransactions(ABC, Generic[Job]):
    """One open file. Subclasses define what a job does; they may also write with `_writer` directly if `_inline()`."""

    _CALLED: ClassVar[str]
    """What the user has opened, for error messages."""
    _THREADS: ClassVar[str]
    """What the names of its threads begin with."""

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options) -> None:
        self._path = path
        self._policy = policy
        self._timeout_s = options.timeout_s
        self._commit_s = 0.0  # a moving average
        self._closed = False
        self._owner = Owner()
        self._writer = self._connect()
        self._reader = self._connect()
        self._far_reader = self._connect()
        self._writing, self._reading, self._far_reading = (at_work() for _ in range(3))
        """Held while these connections are used."""
        for connection in (self._writer, self._reader, self._far_reader):
            connection.execute(
                "SELECT 1 FROM sqlite_master"
            ).fetchone()  # opens the log, so that the guard watches the one in use
        self._guard = FileGuard(path, log=self._policy.journal == "wal")
        self._write_thread = ThreadPoolExecutor(1, f"{self._THREADS}-write")
        self._read_thread = ThreadPoolExecutor(1, f"{self._THREADS}-read")
        self._batcher = Batcher[Job, Any](self._run, timeout_s=options.timeout_s)
        self.notice = policy.notice

    @property
    def durability(self) -> Durability:
        """The least that every receipt of this store promises."""
        return self._policy.durability

    async def close(self) -> None:
        """In a fork this does nothing: the connections and their threads belong to the parent."""
        if self._closed or not self._owner.may_close(after_loop=True):
            return
        # At once: it is closed only once, and those who go on writing do not keep it open.
        self._closed = True
        await to_its_end(self._close())

    async def _close(self) -> None:
        await self._batcher.drain()
        await self._release()

    async def _release(self) -> None:
        await aside(self._end_threads)
        with self._guard.closing(), self._writing, self._reading, self._far_reading:
            for connection in (self._reader, self._far_reader, self._writer):
                connection.close()

    def _end_threads(self) -> None:
        self._write_thread.shutdown()
        self._read_thread.shutdown()

    # ---- what is special about the file

    def _connect(self) -> sqlite3.Connection:
        """A connection in autocommit that does not wait for locks, and that any one thread at a time may use."""
        connection = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        connection.execute(f"PRAGMA synchronous = {self._policy.synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        return connection

    @abstractmethod
    def _outcome(self, job: Job, connection: sqlite3.Connection) -> Any:
        """The job's result, or the `RecollectError` that it ended with."""

    def _may_take_long(self, job: Job) -> bool:
        """Whether a job must leave the event loop, however short commits are on average."""
        return False

    def _begun(self, connection: sqlite3.Connection) -> None:
        """Called in each write transaction before its jobs."""

    # ---- writing

    def _inline(self) -> bool:
        """Whether commits are short enough for the event loop."""
        return self._commit_s <= INLINE_MAX_S and self._policy.journal == "wal"

    def _note_commit(self, taken_s: float) -> None:
        self._commit_s = 0.8 * self._commit_s + 0.2 * taken_s

    async def _submit(self, job: Job) -> Any:
        """The job's result: at once if nobody else writes and commits are short, else together with others."""
        self._check_open(NotWritten)
        if self._batcher.alone() and self._inline():
            results = self._commit([job], 0.0)
            if results is not None:
                if self._batcher.yield_due():
                    await asyncio.sleep(0)
                if isinstance(results[0], Exception):
                    raise results[0]
                return results[0]
        return await self._batcher.submit(job)

    async def _run(self, jobs: list[Job]) -> list[Any]:
        if self._inline() and not any(map(self._may_take_long, jobs)):
            results = self._commit(jobs, wait_s=0.0)
            if results is not None:
                return results
        # A little less than the caller's own limit, so that the error names the lock, not the time limit.
        wait_s = self._timeout_s * 0.9
        results = await aside(self._commit, jobs, wait_s, executor=self._write_thread)
        if results is None:
            raise NotWritten(f"{self._path} was locked by another process for {wait_s:g} s; safe to retry")
        return results

    def _commit(
        self, jobs: list[Job], wait_s: float, writer: sqlite3.Connection | None = None
    ) -> list[Any] | None:
        """Runs the jobs in one transaction; None if another process, or another writer of ours, kept the lock."""
        connection = writer or self._writer
        with self._writing:
            try:
                results = self._transaction(jobs, time.monotonic() + wait_s, connection)
            except BaseException:  # whatever it is, a transaction left open would lock everybody out
                self._roll_back(connection)
                raise
            if results is None:
                self._roll_back(connection)
            return results

    def _transaction(
        self, jobs: list[Job], deadline: float, connection: sqlite3.Connection
    ) -> list[Any] | None:
        try:
            if not until(deadline, lambda: connection.execute("BEGIN IMMEDIATE")):
                return None
            started = time.monotonic()
            self._check(self._guard.harm_before_write(locked=True))
            self._begun(connection)
            results = [self._outcome(job, connection) for job in jobs]
        except RecollectError:
            raise
        except Exception as error:
            self._check(self._guard.harm_before_read())
            reason = str(error) if isinstance(error, sqlite3.Error) else repr(error)
            raise NotWritten(f"{self._path}: {reason}; nothing was written") from error
        try:
            if not until(deadline, lambda: connection.execute("COMMIT")):
                return None
        except sqlite3.Error as error:
            raise commit_failed(self._path, error) from error
        self._note_commit(time.monotonic() - started)
        self._check(self._guard.harm_after_commit())
        return results

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:  # a full disk has rolled back already
            connection.execute("ROLLBACK")

    # ---- reading

    async def _read(
        self,
        query: Callable[[sqlite3.Connection], Value],
        *,
        inline: bool = False,
        deadline: float | None = None,
    ) -> Value:
        """The query's result, in time: SQLite is interrupted, and the query's own code raises `TimeoutError`."""
        if inline and self._batcher.yield_due():  # a loop of reads must let others run
            await asyncio.sleep(0)
        self._check_open(EngineUnavailable)
        self._check(self._guard.harm_before_read())
        try:
            if inline and self._policy.journal == "wal":
                try:
                    with self._reading:
                        return query(self._reader)
                except sqlite3.OperationalError as error:
                    if not is_locked(error):
                        raise
            return await self._read_aside(query, deadline or time.monotonic() + self._timeout_s)
        except TimeoutError as error:
            raise too_long(self._timeout_s) from error
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_INTERRUPT:
                raise too_long(self._timeout_s) from error
            raise Unreadable(f"{self._path}: {error}") from error
        except UnicodeDecodeError as error:  # a damaged name, in SQLite's own error
            raise Unreadable(f"{self._path}: {error}") from error

    async def _read_aside(self, query: Callable[[sqlite3.Connection], Value], deadline: float) -> Value:
        """On the reader thread, which gives up by itself; one that hangs in disk I/O is not waited for."""
        answer: asyncio.Future[Value] = aside(self._query, query, deadline, executor=self._read_thread)
        try:
            await asyncio.wait([answer], timeout=deadline - time.monotonic() + READ_GRACE_S)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if not answer.done():
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise TimeoutError
        return answer.result()

    def _query(self, query: Callable[[sqlite3.Connection], Value], deadline: float) -> Value:
        answer: list[Value] = []
        reader = self._far_reader
        reader.set_progress_handler(lambda: time.monotonic() > deadline, PROGRESS_STEPS)
        try:
            with self._far_reading:
                if not until(deadline, lambda: answer.append(query(reader))):
                    raise EngineUnavailable(f"{self._path} was locked for {self._timeout_s:g} s")
        finally:
            reader.set_progress_handler(None, 0)
        return answer[0]

    def _check_open(self, kind: type[RecollectError]) -> None:
        self._owner.check()
        if self._closed:
            raise StoreClosed(self._CALLED)

    def _check(self, harm: str | None) -> None:
        if harm is not None:
            raise StoreReplaced(
                f"{harm} while the {self._CALLED} was open; what was written lately may not be there. "
                "Open it again once the volume is back."
            )


def commit_failed(path: Path, error: sqlite3.Error) -> RecollectError:
    if code_of(error) & 0xFF == sqlite3.SQLITE_FULL:
        return NotWritten(f"{path}: the disk is full; nothing was written")
    # A failed fsync says nothing about what reached the disk, and a later recovery may find it there.
    return OutcomeUnknown(f"{path}: commit failed ({error})")
