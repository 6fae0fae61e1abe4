"""Stores on Redis for asyncio: wrong when several tasks, or several processes, use them at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import redis as synchronous
import redis.asyncio as redis

from recollect.message import Message
from recollect.verify.engines import Endpoint

Messages = Sequence[Message]
Said = list[dict[str, str]]


def plain(message: Message) -> str:
    return json.dumps({"role": message.role, "content": message.text})


class OneCommand:
    """Nothing wrong: a turn is one command."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url)

    async def append(self, session: str, messages: Messages) -> None:
        await self.client.rpush(f"chat:{session}", *map(plain, messages))

    async def history(self, session: str) -> Said:
        return [json.loads(item) for item in await self.client.lrange(f"chat:{session}", 0, -1)]

    async def close(self) -> None:
        await self.client.aclose()


class OneValue(OneCommand):
    """A session is one JSON value: read it, add to it, write it back."""

    async def append(self, session: str, messages: Messages) -> None:
        known = json.loads(await self.client.get(f"chat:{session}") or "[]")
        known += [{"role": m.role, "content": m.text} for m in messages]
        await self.client.set(f"chat:{session}", json.dumps(known))

    async def history(self, session: str) -> Said:
        found: Said = json.loads(await self.client.get(f"chat:{session}") or "[]")
        return found


class OneConnection(OneValue):
    """The same on one connection: the driver lets one caller after the other use it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url, single_connection_client=True)


class CreatedOnce(OneValue):
    """Two that begin a session are told apart by the engine; two that go on with one are not."""

    async def append(self, session: str, messages: Messages) -> None:
        first = json.dumps([{"role": m.role, "content": m.text} for m in messages])
        if not await self.client.set(f"chat:{session}", first, nx=True):
            await super().append(session, messages)


class WatchedValue(OneValue):
    """Nothing wrong: read, and write only if nobody wrote since; else again."""

    async def append(self, session: str, messages: Messages) -> None:
        key = f"chat:{session}"
        while True:
            async with self.client.pipeline() as pipe:
                await pipe.watch(key)
                known = json.loads(await pipe.get(key) or "[]")
                known += [{"role": m.role, "content": m.text} for m in messages]
                pipe.multi()
                pipe.set(key, json.dumps(known))
                try:
                    await pipe.execute()
                except redis.WatchError:
                    continue
                return


class LockedValue(OneValue):
    """Read, add and write under one lock: right in one process, wrong in two."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = asyncio.Lock()

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            await super().append(session, messages)


class ReentrantLock(OneValue):
    """A lock in Redis that whoever holds it may take again; the holder is named by its process."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.me = f"worker-{os.getpid()}"

    async def append(self, session: str, messages: Messages) -> None:
        lock = f"lock:{session}"
        while not await self.client.set(lock, self.me, nx=True, px=60_000):
            if (await self.client.get(lock) or b"").decode() == self.me:
                break
            await asyncio.sleep(0.01)
        try:
            await super().append(session, messages)
        finally:
            await self.client.delete(lock)


class LockOfTheCall(OneValue):
    """Nothing wrong: the same lock, and each call is a holder of its own."""

    calls = 0

    async def append(self, session: str, messages: Messages) -> None:
        LockOfTheCall.calls += 1
        lock, me = f"lock:{session}", f"{os.getpid()}-{LockOfTheCall.calls}"
        while not await self.client.set(lock, me, nx=True, px=60_000):
            await asyncio.sleep(0.01)
        try:
            await super().append(session, messages)
        finally:
            await self.client.delete(lock)


class GivesUpWaiting(OneValue):
    """A lock that is waited for three times; then it must be a dead worker's."""

    async def append(self, session: str, messages: Messages) -> None:
        for _ in range(3):
            if await self.client.set(f"lock:{session}", "1", nx=True):
                break
            await asyncio.sleep(0.05)
        await super().append(session, messages)
        await self.client.delete(f"lock:{session}")


class CountThenInsert(OneCommand):
    """The next place is how many there are."""

    async def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            place = await self.client.hlen(f"chat:{session}")
            await self.client.hset(f"chat:{session}", place, plain(message))

    async def history(self, session: str) -> Said:
        found = await self.client.hgetall(f"chat:{session}")
        return [json.loads(found[key]) for key in sorted(found, key=int)]


class CountedInTheEngine(CountThenInsert):
    """Nothing wrong: the engine gives the places, and one command writes the turn."""

    async def append(self, session: str, messages: Messages) -> None:
        last = await self.client.incrby(f"places:{session}", len(messages))
        first = last - len(messages)
        fields = {first + number: plain(message) for number, message in enumerate(messages)}
        await self.client.hset(f"chat:{session}", mapping=fields)


class NumbersInMemory(CountThenInsert):
    """The place comes from a counter in the process, which is raised when the write is done."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.last: dict[str, int] = {}

    async def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            place = self.last.get(session, 0)
            await self.client.hset(f"chat:{session}", place, plain(message))
            self.last[session] = place + 1


class CheckThenInsert(OneCommand):
    """A turn that was seen is not stored again, if looking and storing were one."""

    async def append(self, session: str, messages: Messages, turn: str | None = None) -> None:
        if turn is not None and await self.client.sismember(f"turns:{session}", turn):
            return
        await super().append(session, messages)
        if turn is not None:
            await self.client.sadd(f"turns:{session}", turn)


class CheckedInTheEngine(OneCommand):
    """Nothing wrong: looking and storing are one script."""

    SCRIPT = """if redis.call('SADD', KEYS[2], ARGV[1]) == 1 then
    for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end end return 1"""

    async def append(self, session: str, messages: Messages, turn: str | None = None) -> None:
        keys = (f"chat:{session}", f"turns:{session}")
        await self.client.eval(self.SCRIPT, 2, *keys, turn or os.urandom(8).hex(), *map(plain, messages))


class SaysWhetherItWasNew(CheckedInTheEngine):
    """Nothing wrong: `False` says that the turn was there."""

    SCRIPT = """if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return 0 end
    return redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))"""

    async def append(self, session: str, messages: Messages, turn: str | None = None) -> bool:  # type: ignore[override]
        keys = (f"chat:{session}", f"turns:{session}")
        texts = map(plain, messages)
        return bool(await self.client.eval(self.SCRIPT, 2, *keys, turn or os.urandom(8).hex(), *texts))


class StaleCache(OneCommand):
    """The cache is emptied before the write, and a read in between fills it again with the old list."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.cache: dict[str, Said] = {}

    async def append(self, session: str, messages: Messages) -> None:
        self.cache.pop(session, None)
        await super().append(session, messages)

    async def history(self, session: str) -> Said:
        if session not in self.cache:
            self.cache[session] = await super().history(session)
        return self.cache[session]


class CachedByVersion(OneCommand):
    """A cache that knows which version it has; the version is raised before the write that it stands for."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.cache: dict[str, tuple[bytes, Said]] = {}

    async def append(self, session: str, messages: Messages) -> None:
        await self.client.incr(f"version:{session}")
        await super().append(session, messages)

    async def history(self, session: str) -> Said:
        version = await self.client.get(f"version:{session}")
        if version is None or session not in self.cache or self.cache[session][0] != version:
            self.cache[session] = (version, await super().history(session))
        return self.cache[session][1]


class TwoWrites(OneCommand):
    """The question and the answer of a turn are two writes; a reader sees one without the other."""

    async def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            await super().append(session, [message])


class CompactsInTwoSteps(OneCommand):
    """From the second message on, an append also compacts: reads the list, and writes it back."""

    async def append(self, session: str, messages: Messages) -> None:
        await super().append(session, messages)
        key = f"chat:{session}"
        if await self.client.llen(key) >= 2:
            known = await self.client.lrange(key, 0, -1)
            async with self.client.pipeline() as pipe:
                await pipe.delete(key).rpush(key, *known).execute()


class CompactsEveryTenth(OneCommand):
    """The same at every tenth message only."""

    async def append(self, session: str, messages: Messages) -> None:
        await super().append(session, messages)
        key = f"chat:{session}"
        if await self.client.llen(key) >= 10:
            known = await self.client.lrange(key, 0, -1)
            async with self.client.pipeline() as pipe:
                await pipe.delete(key).rpush(key, *known).execute()


class CompactsEveryTenthOfItsOwn(OneCommand):
    """The same at the store's own tenth message, whatever the session."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.count = 0

    async def append(self, session: str, messages: Messages) -> None:
        await super().append(session, messages)
        self.count += 1
        if self.count % 10 == 0:
            key = f"chat:{session}"
            known = await self.client.lrange(key, 0, -1)
            async with self.client.pipeline() as pipe:
                await pipe.delete(key).rpush(key, *known).execute()


class WriteBehind(OneCommand):
    """Acknowledged as soon as the write is on its way."""

    async def append(self, session: str, messages: Messages) -> None:
        self.task = asyncio.create_task(super().append(session, messages))
        await asyncio.sleep(0)


class SharedPipeline(OneCommand):
    """One pipeline object for all tasks: whoever executes it clears what the others have queued."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.pipe = self.client.pipeline()

    async def append(self, session: str, messages: Messages) -> None:
        self.pipe.rpush(f"chat:{session}", *map(plain, messages))
        await self.pipe.execute()


class RetriesWhenSlow(OneCommand):
    """No answer in half a second: once more."""

    async def append(self, session: str, messages: Messages) -> None:
        for _ in range(2):
            try:
                async with asyncio.timeout(0.5):
                    await super().append(session, messages)
                break
            except TimeoutError:
                continue


class ReadsTwice(OneCommand):
    """Nothing wrong: a read that has no answer in half a second is made again."""

    async def history(self, session: str) -> Said:
        try:
            async with asyncio.timeout(0.5):
                return await super().history(session)
        except TimeoutError:
            return await super().history(session)


class GivesUpWhenSlow(OneCommand):
    """Nothing wrong: no answer in half a second is an error, and an honest one."""

    async def append(self, session: str, messages: Messages) -> None:
        async with asyncio.timeout(0.5):
            await super().append(session, messages)


class SameLength(OneCommand):
    """Written back only if the list is as long as it was: true again after others have forgotten and appended."""

    SCRIPT = """if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end
    redis.call('DEL', KEYS[1]) for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end return 1"""

    async def append(self, session: str, messages: Messages) -> None:
        while True:
            known = await self.client.lrange(f"chat:{session}", 0, -1)
            new = [*known, *map(plain, messages)]
            if await self.client.eval(self.SCRIPT, 1, f"chat:{session}", len(known), *new):
                return

    async def forget(self, session: str) -> None:
        await self.client.delete(f"chat:{session}")


class Forgetting(OneCommand):
    """Nothing wrong: forgetting is one command, too."""

    async def forget(self, session: str) -> None:
        await self.client.delete(f"chat:{session}")


class FracturedContext(OneCommand):
    """A context is two statements, and an append comes in between."""

    async def context(self, session: str) -> list[Said]:
        return [await self.history(session), await self.history(session)]


class WholeContext(OneCommand):
    """Nothing wrong: both parts are read at once."""

    async def context(self, session: str) -> list[Said]:
        async with self.client.pipeline() as pipe:
            parts = await pipe.lrange(f"chat:{session}", 0, -1).lrange(f"chat:{session}", 0, -1).execute()
        return [[json.loads(item) for item in part] for part in parts]


class OpensWhenBusy(OneCommand):
    """Nothing wrong: it has two connections, and opens a third one for an append that meets two reads, unless another
    append was there first. It asks something on it before it is used."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.url = endpoint.url
        self.made: list[Any] = [self.client, redis.Redis.from_url(self.url)]
        self.idle: asyncio.Queue[Any] = asyncio.LifoQueue()
        for client in self.made:
            self.idle.put_nowait(client)
        self.one_append = asyncio.Lock()

    async def opened(self) -> Any:
        self.made.append(redis.Redis.from_url(self.url, single_connection_client=True))
        await self.made[-1].get("settings")
        return self.made[-1]

    async def append(self, session: str, messages: Messages) -> None:
        is_first = not self.one_append.locked()
        async with self.one_append:
            client = await self.opened() if is_first and self.idle.empty() else await self.idle.get()
            await client.rpush(f"chat:{session}", *map(plain, messages))
            self.idle.put_nowait(client)

    async def history(self, session: str) -> Said:
        client = await self.idle.get()
        found = await client.lrange(f"chat:{session}", 0, -1)
        self.idle.put_nowait(client)
        return [json.loads(item) for item in found]

    async def close(self) -> None:
        for client in self.made:
            await client.aclose()


class SavedWhole:
    """Whole lists: the last one to save wins."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url)

    async def save(self, session: str, messages: list[dict[str, str]]) -> None:
        await self.client.set(f"chat:{session}", json.dumps(messages))

    async def load(self, session: str) -> Said:
        found: Said = json.loads(await self.client.get(f"chat:{session}") or "[]")
        return found

    async def close(self) -> None:
        await self.client.aclose()


# ---- connections by hand


class SharedStream(OneCommand):
    """One connection for all, spoken to by hand: who reads first gets whatever reply comes first."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.address = (endpoint.host, endpoint.port)
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, *words: object) -> Any:
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(*self.address)
        packed = b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in (str(w).encode() for w in words))
        self.writer.write(b"*%d\r\n%b" % (len(words), packed))
        await self.writer.drain()
        return await self.value(self.reader)

    async def value(self, reader: asyncio.StreamReader) -> Any:
        line = await reader.readline()
        size = int(line[1:])
        if line[:1] == b"*":
            return [await self.value(reader) for _ in range(size)]
        return (await reader.readexactly(size + 2))[:-2] if line[:1] == b"$" else size

    async def append(self, session: str, messages: Messages) -> None:
        await self.ask("RPUSH", f"chat:{session}", *map(plain, messages))

    async def history(self, session: str) -> Said:
        return [json.loads(item) for item in await self.ask("LRANGE", f"chat:{session}", 0, -1)]

    async def close(self) -> None:
        if self.reader is not None:
            self.writer.close()


class CancelledConnection(SharedStream):
    """One caller at a time, and still: a caller that is cancelled leaves its reply to the next."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = asyncio.Lock()

    async def ask(self, *words: object) -> Any:
        async with self.lock:
            return await super().ask(*words)


class ClosesWhenCancelled(CancelledConnection):
    """Nothing wrong: a connection with a reply outstanding is not used again."""

    async def ask(self, *words: object) -> Any:
        async with self.lock:
            try:
                return await SharedStream.ask(self, *words)
            except BaseException:
                if self.reader is not None:
                    self.writer.close()
                self.reader = None
                raise


class LockKept(OneCommand):
    """A lock that is given back, unless something happens in between."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = asyncio.Lock()

    async def append(self, session: str, messages: Messages) -> None:
        await self.lock.acquire()
        await super().append(session, messages)
        self.lock.release()


class LockGivenBack(LockKept):
    """Nothing wrong: whatever happens, it is given back."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            await OneCommand.append(self, session, messages)


# ---- what cannot be judged, and what is no mistake


class OutOfSight:
    """A synchronous client in threads: what goes over its connection is not seen."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = synchronous.Redis.from_url(endpoint.url)

    async def append(self, session: str, messages: Messages) -> None:
        await asyncio.to_thread(self.client.rpush, f"chat:{session}", *map(plain, messages))

    async def history(self, session: str) -> Said:
        items = await asyncio.to_thread(self.client.lrange, f"chat:{session}", 0, -1)
        return [json.loads(item) for item in items]

    async def close(self) -> None:
        self.client.close()


class TurnedAway(Exception):
    """Somebody else was faster."""


class TurnsAway(OneValue):
    """A caller that comes in between is turned away, and nothing is written: an error, where nobody declared it."""

    async def append(self, session: str, messages: Messages) -> None:
        key = f"chat:{session}"
        async with self.client.pipeline() as pipe:
            await pipe.watch(key)
            known = json.loads(await pipe.get(key) or "[]")
            known += [{"role": m.role, "content": m.text} for m in messages]
            pipe.multi()
            pipe.set(key, json.dumps(known))
            try:
                await pipe.execute()
            except redis.WatchError as error:
                raise TurnedAway(session) from error


class TurnsAwayAsDeclared(TurnsAway):
    """Nothing wrong: it says so."""

    expected_errors = ("TurnedAway",)


class PollsForEver(OneValue):
    """Waits for a key that nobody ever writes."""

    async def append(self, session: str, messages: Messages) -> None:
        while not await self.client.get(f"permission:{session}"):
            await asyncio.sleep(0.01)


class EndsTheProcess(OneCommand):
    """Takes its whole process with it."""

    async def append(self, session: str, messages: Messages) -> None:
        os._exit(7)
