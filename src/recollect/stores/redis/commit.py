"""Group commit on Redis: writes that arrive while others are in flight go out together, in one round trip.

A lone write goes out at once, without a task of its own. A batch is one run of script calls, followed by WAIT and
WAITAOF when the durability asked for needs them: both wait for everything this connection has written, so one of each
serves the whole batch. Where WAITAOF cannot be believed, the fsync is watched for afterwards (`fsync`).

With a few callers or more, each batch is half of them: one half is answered and made ready while the engine works on
the other. As one batch, the two sides would wait for each other.

One timer enforces the time limits of all: writes are first come, first served, so the oldest are always at the front.
"""

import asyncio
from collections import deque

from recollect.batching import BatchObserver, never_started, unacknowledged
from recollect.errors import DurabilityUnavailable, NotWritten, OutcomeUnknown, StoreReplaced
from recollect.stores.redis.fsync import FsyncWatch
from recollect.stores.redis.pool import NoFreeConnection, RedisPool
from recollect.stores.redis.script import Script
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.wire import Reply, ReplyError, Wire, WireLost

BATCH_MAX = 128
HALVED_LEAST = 6
"""Fewer writes are not worth two round trips."""
PASSED_MAX = 2 * BATCH_MAX
"""Waiting writes that are looked past, for others whose sessions are free."""


class QueuedWrite:
    """One script call on its way: the packed command, where its reply goes, and its batch's durability."""

    __slots__ = ("body", "count", "deadline", "future", "plan", "request", "script", "sessions", "shortfall")
    sessions: tuple[bytes, ...]
    """The packed keys of each session that it writes to."""

    future: asyncio.Future[Reply]
    deadline: float
    plan: DurabilityPlan
    shortfall: str | None
    """What the plan failed to reach, once there is a reply."""

    def __init__(self, script: Script, sessions: tuple[bytes, ...], arguments: bytes, count: int) -> None:
        self.script = script
        self.sessions = sessions
        self.body = b"".join((*sessions, arguments))
        self.count = count
        self.request = script.by_digest(self.body, count, len(sessions))


class Commit:
    """Sends writes in batches: several at once if each waits for disks or replicas; else two, or in a cluster, where
    other nodes work meanwhile, one after another."""

    def __init__(
        self,
        pool: RedisPool,
        plan: DurabilityPlan,
        watch: FsyncWatch,
        *,
        timeout_s: float,
        pool_size: int,
        overlaps: bool,
    ) -> None:
        self.plan = plan
        self._pool = pool
        self._watch = watch
        self._timeout_s = timeout_s
        self._pool_size = pool_size
        self._overlaps = overlaps and pool_size > 2
        self._waiting: deque[QueuedWrite] = deque()
        self._sent: dict[Wire, list[QueuedWrite]] = {}
        self._watched: dict[asyncio.Task[None], list[QueuedWrite]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._gathering = False
        self._loop = asyncio.get_running_loop()
        self.observe: BatchObserver | None = None

    def submit(self, write: QueuedWrite) -> "asyncio.Future[Reply]":
        """A future for the script's reply; `NotWritten` or `OutcomeUnknown` when the time limit is over."""
        loop = self._loop
        write.future = loop.create_future()
        write.deadline = loop.time() + self._timeout_s
        self._waiting.append(write)
        if self._timer is None:
            self._timer = loop.call_at(write.deadline, self._expire)
        self._start()
        return write.future

    def resubmit(self, write: QueuedWrite, deadline: float) -> "asyncio.Future[Reply]":
        """The same for a write that another server did not do, in the time it has left."""
        loop = self._loop
        write.future = loop.create_future()
        write.deadline = deadline
        place = next((index for index, other in enumerate(self._waiting) if other.deadline > deadline), None)
        if place is None:
            self._waiting.append(write)
        else:
            self._waiting.insert(place, write)
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(deadline, self._expire)
        self._start()
        return write.future

    def refuse_waiting(self, why: str) -> None:
        """Fails everything that was not sent yet."""
        for task in self._starting:
            task.cancel()
        self._starting.clear()
        while self._waiting:
            write = self._waiting.popleft()
            if not write.future.done():
                write.future.set_exception(NotWritten(why))

    async def drain(self) -> None:
        """Waits until everything submitted so far has ended; every write ends within its time limit."""
        while pending := [
            write.future
            for batch in (self._waiting, *self._sent.values(), *self._watched.values())
            for write in batch
            if not write.future.done()
        ]:
            await asyncio.wait(pending)
        for task in (*self._starting, *self._watched):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        if self._gathering or not self._waiting:
            return
        batches_max = max(1, self._pool_size - 1) if self.plan.count else self._batches_wanted()
        if len(self._sent) + len(self._starting) >= batches_max:  # one connection is left for reads
            return
        if wire := self._pool.take():
            self._send(wire)
            return
        task = self._loop.create_task(self._start_later())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _batches_wanted(self) -> int:
        return 2 if self._overlaps and self._outstanding() >= HALVED_LEAST else 1

    def _outstanding(self) -> int:
        return len(self._waiting) + sum(map(len, self._sent.values()))

    async def _start_later(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            wire = await self._pool.wait()
        except Exception as error:
            self._starting.discard(me)  # now: until its done callback it would keep others from starting
            self._fail_waiting(error)
            return
        self._starting.discard(me)
        self._send(wire)

    def _fail_waiting(self, error: Exception) -> None:
        """No connection: nothing that is waiting was sent. A busy pool may still serve the younger ones."""
        now = self._loop.time()
        for write in list(self._waiting):
            if isinstance(error, NoFreeConnection) and write.deadline > now:
                continue
            self._waiting.remove(write)
            if not write.future.done():
                lasting = isinstance(error, StoreReplaced | DurabilityUnavailable)
                write.future.set_exception(error if lasting else NotWritten(f"{error}; safe to retry"))
        self._loop.call_soon(self._start)

    def _next_batch(self) -> list[QueuedWrite]:
        """The oldest writes; those of half the callers, if the other half is to be under way meanwhile.

        Writes to one session keep the order in which they were submitted: they go out together, or one after the
        other's answer."""
        batch: list[QueuedWrite] = []
        if self.plan.count or not self._overlaps:
            while self._waiting and len(batch) < BATCH_MAX:
                write = self._waiting.popleft()
                if not write.future.done():  # else its caller gave up
                    batch.append(write)
            return batch
        size = -(-self._outstanding() // self._batches_wanted())
        busy = {session for sent in self._sent.values() for write in sent for session in write.sessions}
        passed: list[QueuedWrite] = []
        taken: set[bytes] = set()
        while self._waiting and len(batch) < BATCH_MAX and len(passed) < PASSED_MAX:
            write = self._waiting.popleft()
            if write.future.done():  # its caller gave up
                continue
            if busy.isdisjoint(write.sessions) and (len(batch) < size or taken.issuperset(write.sessions)):
                batch.append(write)
                taken.update(write.sessions)
            else:
                passed.append(write)
                busy.update(write.sessions)
        self._waiting.extendleft(reversed(passed))
        return batch

    def _send(self, wire: Wire) -> None:
        batch = self._next_batch()
        if not batch:
            self._pool.give_back(wire)
            return
        if self.observe is not None:
            submitted_at = batch[0].deadline - self._timeout_s
            self.observe(len(batch), self._loop.time() - submitted_at)
        self._sent[wire] = batch
        plan = self.plan
        request = b"".join([write.request for write in batch]) + plan.request
        wire.ask(request, len(batch) + plan.count, lambda replies: self._settle(wire, plan, replies))
        if self._overlaps:
            self._start()  # the other half

    def _settle(self, wire: Wire, plan: DurabilityPlan, replies: list[Reply] | WireLost) -> None:
        batch = self._sent.pop(wire)
        self._pool.give_back(wire)
        if isinstance(replies, WireLost):
            for write in batch:
                if not write.future.done():
                    write.future.set_exception(
                        OutcomeUnknown(
                            f"the connection broke before the reply came ({replies}); retry with the same turn id"
                        )
                    )
        else:
            shortfall = plan.shortfall(replies[len(batch) :])
            unknown_to_engine: list[QueuedWrite] = []
            held: list[tuple[QueuedWrite, Reply]] = []
            holds = plan.watches and shortfall is None
            for write, reply in zip(batch, replies, strict=False):
                if write.future.done():
                    continue
                if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT":
                    write.request = write.script.by_source(write.body, write.count, len(write.sessions))
                    unknown_to_engine.append(write)
                    continue
                write.plan, write.shortfall = plan, shortfall
                if holds:
                    held.append((write, reply))
                else:
                    write.future.set_result(reply)
            self._waiting.extendleft(reversed(unknown_to_engine))
            if held:
                task = self._loop.create_task(self._answer_when_fsynced(wire.run, held))
                self._watched[task] = [write for write, _ in held]
                task.add_done_callback(self._watched.pop)
        if len(batch) > 1:
            # Let the callers just answered run first: their next writes join this batch instead of missing it.
            self._gathering = True
            self._loop.call_soon(self._gathered)
        else:
            self._start()

    async def _answer_when_fsynced(self, run: str, held: list[tuple[QueuedWrite, Reply]]) -> None:
        shortfall = await self._watch.passed(run)
        for write, reply in held:
            if not write.future.done():
                write.shortfall = shortfall
                write.future.set_result(reply)

    def _gathered(self) -> None:
        self._gathering = False
        self._start()

    def _expire(self) -> None:
        """Fails what has waited for its whole time limit; a wire that has held a batch that long is stuck."""
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            write = self._waiting.popleft()
            if not write.future.done():
                queue = f"behind other writes for a connection of the pool (pool_size={self._pool_size})"
                write.future.set_exception(never_started(self._timeout_s, queue))
        sent = [write for batch in (*self._sent.values(), *self._watched.values()) for write in batch]
        for write in sent:
            if write.deadline <= now and not write.future.done():
                write.future.set_exception(unacknowledged(self._timeout_s))
        for wire, batch in list(self._sent.items()):
            if batch[-1].deadline <= now:
                wire.abort()
        deadlines = [batch[-1].deadline for batch in self._sent.values()]
        deadlines += [write.deadline for write in sent if not write.future.done()]
        if self._waiting:
            deadlines.append(self._waiting[0].deadline)
        live = [deadline for deadline in deadlines if deadline > now]
        self._timer = self._loop.call_at(min(live), self._expire) if live else None
