"""One primary: its connections, its group commit, what it promises, and the watch for its fsyncs.

A store on one server has one of these; a cluster has one for each primary; with sentinels there is one for the server
that they name. On each new connection the engine's settings are read again, and whether it is still the store's
(`Guard`): after a restart it may be another one. If it gives less than what was asked for, it is only read from.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from recollect.errors import (
    CannotOpen,
    DurabilityUnavailable,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    StoreClosed,
)
from recollect.store import Durability, Options
from recollect.stores.redis.address import Address
from recollect.stores.redis.commit import Commit, QueuedWrite
from recollect.stores.redis.errors import is_sentinel, not_connected, sentinel_refused
from recollect.stores.redis.fsync import FsyncWatch
from recollect.stores.redis.pool import NoFreeConnection, RedisPool
from recollect.stores.redis.rights import Rights, needed_for
from recollect.stores.redis.settings import (
    QUESTIONS,
    QUESTIONS_COUNT,
    DurabilityPlan,
    answers_waitaof_early,
    check_has_every_slot,
    plan,
    read_settings,
)
from recollect.stores.redis.wire import Reply, ReplyError, Wire, WireLost, connect, pack

PROBE_TIMEOUT_S = 6.0

_NOT_YET = DurabilityPlan(Durability.BUFFERED, 0, False, b"", 0, None)
"""Until the first connection has said what the engine gives: nothing is sent before that."""


class Guard(Protocol):
    """Says whether the engine behind a connection is still the store's."""

    def question(self) -> tuple[bytes, int]:
        """A request, and how many replies it has."""

    def check_readable(self, replies: list[Reply]) -> None:
        """Raises if the engine cannot answer yet, or no longer answers this user."""

    def check_replaced(self, replies: list[Reply]) -> None:
        """Raises `StoreReplaced` if the engine is another one, or was emptied."""

    def probe(self) -> bytes:
        """A write that changes no memory."""


class Shard:
    def __init__(
        self,
        address: Address,
        options: Options,
        guard: Callable[[], Guard],
        *,
        alone: bool = True,
        joins: bool = True,
        planned: Callable[["Shard"], None],
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`guard` makes one for each connection, since several may be made at once. `alone`: this server has every
        session. `joins`: one call may write to any of its sessions. `planned` is called when what the engine gives
        changes. `confirm` raises if a server that was just connected to is no longer the one to use."""
        self.address = address
        self._options = options
        self._guard = guard
        self._alone = alone
        self._planned = planned
        self._confirm = confirm
        self._early: dict[str, bool] = {}
        """Whether the engine answers WAITAOF early, for each build."""
        self._connecting: set[asyncio.Task[Wire]] = set()
        self._slow: set[object] = set()
        """What wires were waiting for when `stuck` was last called."""
        self.is_planned = False
        self.pool = RedisPool(self._connect, size=options.pool_size, timeout_s=options.timeout_s)
        self._watch = FsyncWatch(self.ask, lambda: guard().probe())
        self.commit = Commit(
            self.pool,
            _NOT_YET,
            self._watch,
            self._examine,
            timeout_s=options.timeout_s,
            pool_size=options.pool_size,
            overlaps=alone,
            joins=joins,
        )

    @property
    def plan(self) -> DurabilityPlan:
        return self.commit.plan

    async def open(self) -> None:
        """Makes the first connection; raises if the engine does not give what was asked for."""
        wire = await self._connect()
        if self.commit.lacking is not None:
            wire.abort()
            raise self.commit.lacking
        self.pool.adopt(wire)

    async def close(self) -> None:
        await self.commit.drain()
        await self._watch.close()
        for task in list(self._connecting):
            task.cancel()
        await self.pool.close()

    async def check_rights(self) -> None:
        rights = Rights(self.address.prefix, needed_for(self.plan))
        rights.check(await self.ask(rights.request, rights.count), self.address.shown)

    # ---- asking

    async def ask(
        self, request: bytes, count: int, deadline: float | None = None, *, attempts: int = 2
    ) -> list[Reply]:
        """Replies to a request that is safe to repeat: tried again on a new connection if the first one breaks."""
        left_s = self._options.timeout_s if deadline is None else deadline - time.monotonic()
        try:
            async with asyncio.timeout(left_s):
                for attempt in range(1, attempts + 1):
                    wire = self.pool.take() or await self.pool.wait()
                    try:
                        return await wire.replies(request, count)
                    except WireLost as error:
                        if self.pool.is_closed:
                            raise StoreClosed from error
                        if attempt == attempts:
                            raise not_connected(error, self.address.shown) from error
                    finally:
                        self.pool.give_back(wire)
        except TimeoutError as error:
            raise EngineUnavailable(
                f"{self.address.shown}: no answer within {self._options.timeout_s:g} s"
            ) from error
        except NoFreeConnection as error:
            raise EngineUnavailable(str(error)) from error
        raise AssertionError("unreachable")

    async def write_asking(self, write: QueuedWrite, deadline: float) -> Reply:
        """A write to a slot that is moving here, which the engine takes only after ASKING. Rare, so not batched. It
        carries the script's source: a node that was just added has no scripts."""
        try:
            async with asyncio.timeout_at(deadline):
                wire = await self.commit.free_wire()
        except (TimeoutError, NoFreeConnection) as error:
            raise NotWritten(f"{self.address.shown}: no connection in time; safe to retry") from error
        except CannotOpen as error:
            raise NotWritten(f"{error}; safe to retry") from error
        promised = self.plan
        write.by_source = True
        try:
            async with asyncio.timeout_at(deadline):
                try:
                    _, reply, *waits = await wire.replies(
                        pack("ASKING") + write.request() + promised.request, 2 + promised.count
                    )
                finally:
                    self.pool.give_back(wire)
                write.plan, write.shortfall = promised, promised.shortfall(waits)
                if promised.watches and write.shortfall is None and not isinstance(reply, ReplyError):
                    write.shortfall = await self._watch.passed(wire.run)
        except (WireLost, TimeoutError) as error:
            raise OutcomeUnknown(f"no reply came ({error})") from error
        return reply

    # ---- when it no longer serves

    def stuck(self) -> bool:
        """Whether a wire still waits for what it waited for at the last call."""
        now = self.pool.awaited()
        stuck = not self._slow.isdisjoint(now) or bool(self._connecting)
        self._slow = set(now)
        return stuck

    def pass_on(self) -> None:
        """Another server has its sessions now: unsent writes fail, so that they are sent there, and wires that have
        been silent for a while are given up."""
        for task in list(self._connecting):
            task.cancel()
        self.commit.refuse_waiting(f"{self.address.shown} no longer serves this session; safe to retry")
        self.pool.abort(self._slow)

    def look_again(self) -> None:
        """Makes the next request reconnect, and so see what the engine gives now."""
        self.pool.abort_idle()

    # ---- connecting

    async def _connect(self) -> Wire:
        task = asyncio.get_running_loop().create_task(self._connect_now())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and not (current and current.cancelling()):
                raise EngineUnavailable(f"{self.address.shown} is no longer asked") from None
            if not task.cancel() and not task.cancelled() and task.exception() is None:
                task.result().abort()  # connected just as its caller gave up
            raise

    async def _connect_now(self) -> Wire:
        """A wire to an engine that is still this store's."""
        timeout_s = self._options.timeout_s
        try:
            wire = await connect(self.address.connection(), timeout_s)
        except Exception as error:
            await asyncio.sleep(0)  # a refusal is immediate: let others run if the caller keeps retrying
            raise not_connected(error, self.address.shown) from error
        try:
            found = await self._found(wire)
            if self._confirm is not None:
                await self._confirm()
        except (WireLost, TimeoutError) as error:
            wire.abort()
            raise not_connected(error, self.address.shown) from error
        except BaseException:
            wire.abort()
            raise
        self._note(found)
        return wire

    async def _examine(self, wire: Wire) -> None:
        """Raises if the engine gives less than what was asked for."""
        try:
            self._note(await self._found(wire))
        except (WireLost, TimeoutError) as error:
            wire.abort()
            raise not_connected(error, self.address.shown) from error
        if self.commit.lacking is not None:
            raise self.commit.lacking

    def _note(self, found: DurabilityPlan | DurabilityUnavailable) -> None:
        if isinstance(found, DurabilityUnavailable):
            self.commit.lacking = found
            return
        self.commit.lacking = None
        if found != self.plan or not self.is_planned:
            self.commit.plan, self.is_planned = found, True
            self._planned(self)

    async def _found(self, wire: Wire) -> DurabilityPlan | DurabilityUnavailable:
        """What the engine gives, or why that is not what was asked for."""
        timeout_s = self._options.timeout_s
        guard = self._guard()
        question, count = guard.question()
        async with asyncio.timeout(timeout_s):
            replies = await wire.replies(QUESTIONS + question, QUESTIONS_COUNT + count)
        answers, marks = replies[:QUESTIONS_COUNT], replies[QUESTIONS_COUNT:]
        if is_sentinel(answers[0]):
            raise sentinel_refused(self.address.shown)
        guard.check_readable(marks)
        settings = read_settings(answers, self.address.shown, alone=self._alone)
        if settings.is_cluster_node:
            self.commit.joins = False
        if self._alone and settings.is_cluster_node:
            async with asyncio.timeout(timeout_s):
                await check_has_every_slot(wire, self.address.shown)
        if self.is_planned:  # an AOF's first rewrite happens once; later ones look the same
            settings = replace(settings, aof_begins=False)
        found: DurabilityPlan | DurabilityUnavailable
        try:
            found = plan(settings, self._options, self.address.shown)
        except DurabilityUnavailable as error:
            found = error
        if isinstance(found, DurabilityPlan) and found.waits_for_disk:
            if settings.build not in self._early:
                async with asyncio.timeout(max(timeout_s, PROBE_TIMEOUT_S)):
                    self._early[settings.build] = await answers_waitaof_early(wire, guard.probe())
            found = replace(found, watches=self._early[settings.build])
        wire.run = settings.run
        guard.check_replaced(marks)
        return found
