"""Group commit on Redis: writes that arrive while others are in flight go out together, in one round trip.

A lone write goes out at once, without a task of its own. A batch is one run of script calls, followed by WAIT and
WAITAOF when the durability asked for needs them: both wait for everything this connection has written, so one of each
serves the whole batch. Where WAITAOF cannot be believed, the fsync is watched for afterwards (`fsync`). Appends that
follow one another are one call, for which the engine takes half as long (docs/decisions/0012); not in a cluster, where
no call spans slots.

With a few callers or more, each batch is half of them: one half is answered and made ready while the engine works on
the other. As one batch, the two sides would wait for each other.

One timer enforces the time limits of all: writes are first come, first served, so the oldest are always at the front.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from recollect.batching import BatchObserver, never_started, unacknowledged
from recollect.errors import DurabilityUnavailable, NotWritten, OutcomeUnknown, StoreReplaced
from recollect.stores.redis.fsync import FsyncWatch
from recollect.stores.redis.pool import NoFreeConnection, RedisPool
from recollect.stores.redis.resuming import Resumed, resume
from recollect.stores.redis.script import Script
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.wire import Reply, ReplyError, Wire, WireLost

BATCH_MAX = 128
HALVED_LEAST = 6
"""Fewer writes are not worth two round trips."""
PASSED_MAX = 2 * BATCH_MAX
"""Waiting writes that are looked past, for others whose sessions are free."""
_NOT_RUN = ReplyError("not run")
"""In place of a reply: the engine did nothing, and is asked in another way."""
JOINED_BYTES_MAX = 1 << 16
"""Of the arguments of one call: the engine keeps them all in memory, and starts when it has them all."""


class QueuedWrite(Resumed[Reply]):
    """One script call on its way, its batch's durability, and its answer: the script's reply."""

    __slots__ = (
        "arguments",
        "by_source",
        "count",
        "deadline",
        "plan",
        "script",
        "sent_at",
        "sessions",
        "shortfall",
    )
    sessions: tuple[bytes, ...]
    """The packed keys of each session that it writes to."""

    sent_at: float
    """By `time.monotonic`, which is the loop's clock."""
    deadline: float
    plan: DurabilityPlan
    shortfall: str | None
    """What the plan failed to reach, once there is a reply."""

    def __init__(self, script: Script, sessions: tuple[bytes, ...], arguments: bytes, count: int) -> None:
        self.script = script
        self.sessions = sessions
        self.arguments = arguments
        self.count = count
        self.by_source = False
        """The engine does not know the script."""

    def request(self) -> bytes:
        sessions = self.sessions
        keys = sessions[0] if len(sessions) == 1 else b"".join(sessions)
        return self.script.call(keys, self.arguments, self.count, len(sessions), by_source=self.by_source)


def joined(writes: list[QueuedWrite]) -> bytes:
    """One call that does what each of these would."""
    if len(writes) == 1:
        return writes[0].request()
    sessions = [session for write in writes for session in write.sessions]
    return writes[0].script.call(
        b"".join(sessions),
        b"".join([write.arguments for write in writes]),
        sum([write.count for write in writes]),
        len(sessions),
        by_source=any(write.by_source for write in writes),
    )


class Commit:
    """Sends writes in batches: several at once if each waits for disks or replicas; else two, or in a cluster, where
    other nodes work meanwhile, one after another."""

    def __init__(
        self,
        pool: RedisPool,
        plan: DurabilityPlan,
        watch: FsyncWatch,
        examine: Callable[[Wire], Awaitable[None]],
        *,
        timeout_s: float,
        pool_size: int,
        overlaps: bool,
        joins: bool,
    ) -> None:
        """`examine` asks the engine what it gives now, and raises if that is less than what was asked for."""
        self.plan = plan
        self.lacking: DurabilityUnavailable | None = None
        """Why nothing is written for now; reads go on."""
        self._examine = examine
        self._pool = pool
        self._watch = watch
        self._timeout_s = timeout_s
        self._pool_size = pool_size
        self._overlaps = overlaps and pool_size > 2
        self.joins = joins
        """Whether one call may write to sessions in several slots."""
        self._waiting: deque[QueuedWrite] = deque()
        self._sent: dict[Wire, list[QueuedWrite]] = {}
        self._watched: dict[asyncio.Task[None], list[QueuedWrite]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._gathering = False
        self._loop = asyncio.get_running_loop()
        self.observe: BatchObserver | None = None

    def submit(self, write: QueuedWrite) -> Resumed[Reply]:
        """To be awaited: the script's reply; `NotWritten` or `OutcomeUnknown` when the time limit is over."""
        loop = self._loop
        write.begin(loop)
        write.sent_at = now = loop.time()
        write.deadline = now + self._timeout_s
        self._waiting.append(write)
        if self._timer is None:
            self._timer = loop.call_at(write.deadline, self._expire)
        if not self._gathering:
            self._start()
        return write

    def resubmit(self, write: QueuedWrite, deadline: float) -> Resumed[Reply]:
        """The same for a write that another server did not do, in the time it has left."""
        loop = self._loop
        write.begin(loop)
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
        return write

    def refuse_waiting(self, why: str) -> None:
        """Fails everything that was not sent yet."""
        for task in self._starting:
            task.cancel()
        self._starting.clear()
        while self._waiting:
            write = self._waiting.popleft()
            write.fail(NotWritten(why))

    async def drain(self) -> None:
        """Waits until everything submitted so far has ended; every write ends within its time limit."""
        while pending := [
            write
            for batch in (self._waiting, *self._sent.values(), *self._watched.values())
            for write in batch
            if write.is_open
        ]:
            await asyncio.wait(cast(Any, pending))
        for task in (*self._starting, *self._watched):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        if self._gathering or not self._waiting:
            return
        if (under_way := len(self._sent) + len(self._starting)) and under_way >= self._batches_max():
            return
        if self.lacking is None and (wire := self._pool.take()):
            self._send(wire)
            return
        task = self._loop.create_task(self._start_later())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _batches_max(self) -> int:
        """One connection is left for reads."""
        return max(1, self._pool_size - 1) if self.plan.count else self._batches_wanted()

    def _batches_wanted(self) -> int:
        return 2 if self._overlaps and self._outstanding() >= HALVED_LEAST else 1

    def _outstanding(self) -> int:
        return len(self._waiting) + sum(map(len, self._sent.values()))

    async def _start_later(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            wire = await self.free_wire()
        except Exception as error:
            self._starting.discard(me)  # now: until its done callback it would keep others from starting
            self._fail_waiting(error)
            return
        self._starting.discard(me)
        self._send(wire)

    async def free_wire(self) -> Wire:
        """A wire to write on; raises if the engine does not give what was asked for."""
        wire = await self._pool.wait()
        if self.lacking is not None:
            try:
                await self._examine(wire)
            except BaseException:
                self._pool.give_back(wire)
                raise
        return wire

    def _fail_waiting(self, error: Exception) -> None:
        """No connection: nothing that is waiting was sent. A busy pool may still serve the younger ones."""
        now = self._loop.time()
        for write in list(self._waiting):
            if isinstance(error, NoFreeConnection) and write.deadline > now:
                continue
            self._waiting.remove(write)
            if write.is_open:
                lasting = isinstance(error, StoreReplaced | DurabilityUnavailable)
                write.fail(error if lasting else NotWritten(f"{error}; safe to retry"))
        self._loop.call_soon(self._start)

    def _next_batch(self) -> list[QueuedWrite]:
        """The oldest writes; those of half the callers, if the other half is to be under way meanwhile.

        Writes to one session keep the order in which they were submitted: they go out together, or one after the
        other's answer."""
        waiting = self._waiting
        if not self._overlaps or self.plan.count or not (self._sent or len(waiting) >= HALVED_LEAST):
            batch: list[QueuedWrite] = []
            while waiting and not batch:  # an empty batch is not sent, and nothing follows it
                oldest = [waiting.popleft() for _ in range(min(len(waiting), BATCH_MAX))]
                batch = [write for write in oldest if write.is_open]  # the others' callers gave up
            return batch
        batch = []
        size = -(-self._outstanding() // self._batches_wanted())
        busy = {session for sent in self._sent.values() for write in sent for session in write.sessions}
        passed: list[QueuedWrite] = []
        taken: set[bytes] = set()
        while self._waiting and len(batch) < BATCH_MAX and len(passed) < PASSED_MAX:
            write = self._waiting.popleft()
            if not write.is_open:  # its caller gave up
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
        calls = self._calls(batch) if self.joins and len(batch) > 1 else None
        if calls is None:
            request, count = b"".join([write.request() for write in batch]), len(batch)
        else:
            request, count = b"".join(map(joined, calls)), len(calls)
        if plan.count:
            request += plan.request
        wire.ask(request, count + plan.count, partial(self._settle, wire, calls, plan))
        if self._overlaps and self._waiting:
            self._start()  # the other half

    def _calls(self, batch: list[QueuedWrite]) -> list[list[QueuedWrite]]:
        """The calls that the batch consists of, in order: appends that follow one another share one."""
        calls: list[list[QueuedWrite]] = []
        script, size = None, 0
        for write in batch:
            size += len(write.arguments)
            if write.script is script and script.joins and size <= JOINED_BYTES_MAX:
                calls[-1].append(write)
            else:
                calls.append([write])
                script, size = write.script, len(write.arguments)
        return calls

    def _settle(
        self,
        wire: Wire,
        calls: list[list[QueuedWrite]] | None,
        plan: DurabilityPlan,
        replies: list[Reply] | WireLost,
    ) -> None:
        batch = self._sent.pop(wire)
        self._pool.give_back(wire)
        if isinstance(replies, WireLost):
            for write in batch:
                write.fail(OutcomeUnknown(f"the connection broke before the reply came ({replies})"))
            self._start()
            return
        shortfall = None
        if plan.count:
            shortfall = plan.shortfall(replies[-plan.count :])
        if calls is not None:
            replies = self._of_each(calls, replies)
        answered = self._answered(batch, replies, plan, shortfall)
        if plan.watches and shortfall is None:
            done = [write for write in answered if not isinstance(write.value, ReplyError)]
            answered = [write for write in answered if isinstance(write.value, ReplyError)]
            if done:
                task = self._loop.create_task(self._answer_when_fsynced(wire.run, done))
                self._watched[task] = done
                task.add_done_callback(self._watched.pop)
        # The callers just answered run first: their next writes join this batch instead of missing it.
        self._gathering = True
        try:
            resume(answered)
        finally:
            self._gathering = False
            self._start()

    def _answered(
        self, batch: list[QueuedWrite], replies: list[Reply], plan: DurabilityPlan, shortfall: str | None
    ) -> list[QueuedWrite]:
        """The writes that were done or refused; the others are sent again."""
        answered: list[QueuedWrite] = []
        again: list[QueuedWrite] = []
        for write, reply in zip(batch, replies, strict=False):
            if not write.is_open:
                continue
            if reply is _NOT_RUN or (isinstance(reply, ReplyError) and reply.code == "NOSCRIPT"):
                write.by_source = write.by_source or reply is not _NOT_RUN
                again.append(write)
                continue
            write.plan, write.shortfall, write.value = plan, shortfall, reply
            answered.append(write)
        if again:
            self._waiting.extendleft(reversed(again))
        return answered

    def _of_each(self, calls: list[list[QueuedWrite]], replies: list[Reply]) -> list[Reply]:
        """The replies to the calls, as one for each write."""
        found: list[Reply] = []
        for call, reply in zip(calls, replies, strict=False):
            if len(call) == 1:
                found.append(reply)
            elif isinstance(reply, list) and len(reply) == len(call):
                found += reply
            elif isinstance(reply, ReplyError) and reply.code == "CROSSSLOT":  # a cluster behind one address
                self.joins = False
                found += [_NOT_RUN] * len(call)
            elif isinstance(reply, ReplyError):
                found += [reply] * len(call)
            else:
                found += [ReplyError(f"{str(reply)[:200]} to {len(call)} appends")] * len(call)
        return found

    async def _answer_when_fsynced(self, run: str, held: list[QueuedWrite]) -> None:
        shortfall = await self._watch.passed(run)
        for write in held:
            if write.is_open:
                write.shortfall = shortfall
                write.is_open = False
                write.wake()

    def _expire(self) -> None:
        """Fails what has waited for its whole time limit; a wire that has held a batch that long is stuck."""
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            write = self._waiting.popleft()
            if write.is_open:
                queue = f"behind other writes for a connection of the pool (pool_size={self._pool_size})"
                write.fail(never_started(self._timeout_s, queue))
        sent = [write for batch in (*self._sent.values(), *self._watched.values()) for write in batch]
        for write in sent:
            if write.deadline <= now and write.is_open:
                write.fail(unacknowledged(self._timeout_s))
        for wire, batch in list(self._sent.items()):
            if batch[-1].deadline <= now:
                wire.abort()
        deadlines = [batch[-1].deadline for batch in self._sent.values()]
        deadlines += [write.deadline for write in sent if write.is_open]
        if self._waiting:
            deadlines.append(self._waiting[0].deadline)
        live = [deadline for deadline in deadlines if deadline > now]
        self._timer = self._loop.call_at(min(live), self._expire) if live else None
