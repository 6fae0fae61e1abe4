"""Checkpoints in Redis, beside the sessions of the conversation store.

The keys of a thread's namespace are `<prefix>:langgraph:<kind>:<thread>:<namespace>`, with both ids in hexadecimal:
`c` is a hash of checkpoints by id, `i` a sorted set of their ids, `l` a hash of how they are linked (parent, run and
references, as text that a script can read), `v` a hash of channel values, `w:…:<id>` a hash of pending writes, and `n`
a hash of how many those are. Whichever of them the engine evicts, reading says that something is gone.
`e` is a set of ids whose writes came before their checkpoint, which may never come: what deletes the thread finds them.
`<prefix>:langgraph:places` is the set of all namespaces of all threads, `<prefix>:langgraph:identity` a hash with the
identity and the mark for a witness.

Every change and every read of a checkpoint is one script, and so happens in one moment. The scripts build some key
names themselves, which a Redis Cluster does not allow: this is for a single primary.

How durable a checkpoint is depends on the engine's own settings: with `appendfsync everysec` the last second can be
lost.
"""

import asyncio
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from recollect.adapters.langgraph.shelf import (
    EMPTY,
    WRONG_LINKS,
    CheckpointListing,
    CheckpointRow,
    FoundCheckpoint,
    PendingRow,
    ThreadPlace,
    Unchanged,
    text_of,
)
from recollect.adapters.langgraph.shelf_layout import has_others
from recollect.adapters.langgraph.shelf_redis_opening import examine
from recollect.errors import (
    DurabilityUnavailable,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    StoreClosed,
    StoreReplaced,
    Unreadable,
)
from recollect.owner import Owner
from recollect.store import Options
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.errors import not_connected, was_denied
from recollect.stores.redis.wire import ReplyError

_VALUES_GONE = -1

# The scripts of one namespace have the same KEYS, and the place as the first of ARGV.
_NAMED = "local places, c, i, l, v, n, e, w = unpack(KEYS)\nlocal place = ARGV[1]\n"

# ARGV: the id, the checkpoint, its links, the base that must be there (or nothing: all values are given), what stands
# for no value, then references and values in turn. -1 if a value is neither there nor given. No value is never written
# over one: other checkpoints may have the same reference.
_PUT = (
    _NAMED
    + """
local id, checkpoint, links, base, empty = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if base ~= '' then
    if redis.call('HEXISTS', c, base) == 0 then return -1 end
    local given = {}
    for at = 7, #ARGV, 2 do given[ARGV[at]] = true end
    for ref in string.gmatch(string.match(links, '^%x*|%x*|(.*)$'), '%x+') do
        if not given[ref] and redis.call('HEXISTS', v, ref) == 0 then return -1 end
    end
end
for at = 7, #ARGV, 2 do
    redis.call(ARGV[at + 1] == empty and 'HSETNX' or 'HSET', v, ARGV[at], ARGV[at + 1])
end
redis.call('HSET', l, id, links)
redis.call('HSETNX', n, id, 0)
redis.call('ZADD', i, 0, id)
redis.call('SREM', e, id)
redis.call('SADD', places, place)
return redis.call('HSET', c, id, checkpoint)
"""
)

# ARGV: the id, then whether the first stays (1) or the last (0), a name and a value, in turn.
_PUT_WRITES = (
    _NAMED
    + """
local id, added = ARGV[2], 0
redis.call('HINCRBY', n, id, 0) -- first, so that nothing is written by a user who may not count it
if not redis.call('ZSCORE', i, id) then
    redis.call('SADD', e, id)
    redis.call('SADD', places, place)
end
for at = 3, #ARGV, 3 do
    added = added + redis.call(ARGV[at] == '1' and 'HSETNX' or 'HSET', w .. id, ARGV[at + 1], ARGV[at + 2])
end
return redis.call('HINCRBY', n, id, added)
"""
)

# What the reading scripts share: whether a whole key is gone, and a checkpoint with its values and writes, or nil.
_READ = (
    _NAMED
    + """
local function gone(what)
    return redis.error_reply('ERR ' .. what .. ': keys of this thread were evicted or removed; restore the memory ' ..
        'from a backup, or delete the thread')
end
local function incomplete()
    local count = redis.call('HLEN', c)
    if count ~= redis.call('ZCARD', i) or count ~= redis.call('HLEN', l) then
        return gone(c .. ', ' .. i .. ' and ' .. l .. ' do not have the same checkpoints')
    end
    if count == 0 and redis.call('EXISTS', e) == 0 and redis.call('SISMEMBER', places, place) == 1 then
        return gone(c .. ' is not there any more')
    end
end
local function parts(links) return string.match(links, '^(%x*)|(%x*)|(.*)$') end
local function begins(ref, prefixes)
    if not prefixes then return true end
    for _, prefix in ipairs(prefixes) do
        if string.sub(ref, 1, #prefix) == prefix then return true end
    end
    return false
end
local function read(id, prefixes)
    local row, links, writes = redis.call('HGET', c, id), redis.call('HGET', l, id), redis.call('HGETALL', w .. id)
    if not row or not links then return nil end
    if tonumber(redis.call('HGET', n, id) or -1) ~= #writes / 2 then
        return gone(w .. id .. ' and ' .. n .. ' do not have the same writes')
    end
    local values = {}
    local _, _, refs = parts(links)
    for ref in string.gmatch(refs, '%x+') do
        if begins(ref, prefixes) then
            local value = redis.call('HGET', v, ref)
            values[#values + 1] = ref
            values[#values + 1] = value or ''
        end
    end
    return {id, row, links, values, writes}
end
local found, told = {}, incomplete()
if told then return told end
"""
)

# ARGV: the ids that are wanted, or none for the latest.
_GET = (
    _READ
    + """
local ids = {unpack(ARGV, 2)}
if #ids == 0 then ids = redis.call('ZRANGE', i, -1, -1) end
for _, id in ipairs(ids) do
    local one = read(id, nil)
    if one and one.err then return one end
    if one then found[#found + 1] = one end
end
return found
"""
)

# ARGV: the first id, how many, then how references begin.
_ANCESTORS = (
    _READ
    + """
local id, prefixes = ARGV[2], {unpack(ARGV, 4)}
while id ~= '' and #found < tonumber(ARGV[3]) do
    local one = read(id, prefixes)
    if not one then break end
    if one.err then return one end
    found[#found + 1] = one
    id = parts(one[3])
end
return found
"""
)

# ARGV: the ids that go.
_DROP = (
    _NAMED
    + """
for at = 2, #ARGV do
    redis.call('HDEL', c, ARGV[at])
    redis.call('ZREM', i, ARGV[at])
    redis.call('HDEL', l, ARGV[at])
    redis.call('HDEL', n, ARGV[at])
    redis.call('DEL', w .. ARGV[at])
end
local referred = {}
for _, links in ipairs(redis.call('HVALS', l)) do
    local refs = string.match(links, '^%x*|%x*|(.*)$')
    for ref in string.gmatch(refs, '%x+') do referred[ref] = true end
end
for _, ref in ipairs(redis.call('HKEYS', v)) do
    if not referred[ref] then redis.call('HDEL', v, ref) end
end
if redis.call('EXISTS', c, e) == 0 then redis.call('SREM', places, place) end
return 1
"""
)

# KEYS: how all keys begin, and the set of places. ARGV: the thread, and where it is copied to, beside what is there; no
# target deletes it.
_EVERY_PLACE = """
local source, target = ARGV[1], ARGV[2]
local function copy(from, to)
    if redis.call('EXISTS', to) == 0 then
        redis.call('COPY', from, to)
        return
    end
    local kind = redis.call('TYPE', from).ok
    if kind == 'hash' then
        local fields = redis.call('HGETALL', from)
        for at = 1, #fields, 2 do redis.call('HSET', to, fields[at], fields[at + 1]) end
    elseif kind == 'zset' then
        for _, id in ipairs(redis.call('ZRANGE', from, 0, -1)) do redis.call('ZADD', to, 0, id) end
    elseif kind == 'set' then
        for _, id in ipairs(redis.call('SMEMBERS', from)) do redis.call('SADD', to, id) end
    end
end
for _, place in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    if string.sub(place, 1, #source + 1) == source .. ':' then
        local other = target and (target .. string.sub(place, #source + 1))
        local names, ids = {{'c', ''}, {'i', ''}, {'l', ''}, {'v', ''}, {'e', ''}, {'n', ''}}, {}
        local function add(some) for _, id in ipairs(some) do ids[id] = true end end
        add(redis.call('ZRANGE', KEYS[1] .. 'i:' .. place, 0, -1))
        add(redis.call('SMEMBERS', KEYS[1] .. 'e:' .. place))
        add(redis.call('HKEYS', KEYS[1] .. 'n:' .. place))
        for id in pairs(ids) do names[#names + 1] = {'w', ':' .. id} end
        for _, name in ipairs(names) do
            local begin, ending = KEYS[1] .. name[1] .. ':', name[2]
            if target then
                copy(begin .. place .. ending, begin .. other .. ending)
            else
                redis.call('DEL', begin .. place .. ending)
            end
        end
        for id in pairs(target and ids or {}) do
            local function there(one) return redis.call('HLEN', KEYS[1] .. 'w:' .. one .. ':' .. id) end
            local gone = (redis.call('HGET', KEYS[1] .. 'n:' .. place, id) or 0) - there(place)
            redis.call('HSET', KEYS[1] .. 'n:' .. other, id, there(other) + gone)
        end
        if target then redis.call('SADD', KEYS[2], other) else redis.call('SREM', KEYS[2], place) end
    end
end
return 1
"""


# KEYS: identity.
_RAISE_MARK = "return redis.call('HINCRBY', KEYS[1], 'mark', 1)"


class _Kept(msgspec.Struct, array_like=True):
    checkpoint: bytes
    metadata: bytes
    links: int | None = None
    """The checksum of its links; earlier editions did not have it."""


class _KeptWrite(msgspec.Struct, array_like=True):
    task: bytes
    index: int
    channel: bytes
    path: bytes
    value: bytes


class RedisShelf:
    """See `Shelf`."""

    def __init__(self, url: str, options: Options) -> None:
        if options.durability is not None or options.replicas:
            raise DurabilityUnavailable(
                "checkpoints on Redis are as durable as the engine's own settings make them: open without durability= "
                "and replicas=, or keep checkpoints on SQLite or PostgreSQL"
            )
        address = parse_address(url)
        arguments = dict(address.arguments)
        self._address = address.shown
        self._stem = f"{address.prefix}:langgraph:"
        self._timeout_s = options.timeout_s
        self._redis: Any = Redis(
            connection_pool=BlockingConnectionPool(
                connection_class=arguments.pop("connection_class", Connection),
                max_connections=options.pool_size,
                timeout=options.timeout_s,
                socket_timeout=options.timeout_s,
                socket_connect_timeout=options.timeout_s,
                retry=Retry(
                    NoBackoff(), 0
                ),  # the saver decides what to send again, because it knows what is safe to repeat
                redis_connect_func=self._connected,
                **arguments,
            )
        )
        self._owner = Owner()
        self._closed = False
        self._identity: str | None = None
        scripts = (_PUT, _PUT_WRITES, _GET, _ANCESTORS, _DROP, _EVERY_PLACE, _RAISE_MARK)
        self._scripts = {source: self._redis.register_script(source) for source in scripts}

    @classmethod
    async def open(cls, url: str, options: Options) -> "RedisShelf":
        shelf = cls(url, options)
        await examine(parse_address(url), shelf._stem, options)
        try:
            await shelf._redis.hsetnx(shelf._identity_key, "identity", str(uuid.uuid4()))
            shelf._identity = (await shelf._redis.hget(shelf._identity_key, "identity")).decode()
        except (exceptions.RedisError, OSError) as error:
            await shelf.close()
            raise not_connected(error, shelf._address) from error
        return shelf

    @property
    def identity(self) -> str:
        assert self._identity is not None
        return self._identity

    async def mark(self) -> int:
        return int(await self._reading(self._redis.hget(self._identity_key, "mark")) or 0)

    async def raise_mark(self) -> None:
        await self._change(_RAISE_MARK, [self._identity_key], [])

    async def put(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> None:
        if has_others(row, values) and await self._put(row, row.refs, values, row.base) != _VALUES_GONE:
            return
        every = {ref: values.get(ref) or unchanged(ref) or EMPTY for ref in row.refs}
        await self._put(row, row.refs, every, None)

    async def _put(
        self, row: CheckpointRow, refs: Sequence[bytes], values: Mapping[bytes, bytes], needed: bytes | None
    ) -> Any:
        """`needed` is the base that should have the values which are not given."""
        links = f"{(row.parent or b'').hex()}|{(row.run or b'').hex()}|{','.join(ref.hex() for ref in refs)}"
        kept = _Kept(row.checkpoint, row.metadata, zlib.crc32(links.encode()))
        base = (needed or b"").hex()
        given = [_name(row.place), row.id.hex(), msgspec.msgpack.encode(kept), links, base, EMPTY]
        return await self._change(_PUT, self._keys(row.place), [*given, *_pairs(values)])

    async def put_writes(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> None:
        arguments: list[str | bytes] = [_name(place), checkpoint.hex()]
        for write in writes:
            kept = _KeptWrite(write.task, write.index, write.channel, write.path, write.value)
            name = msgspec.msgpack.encode((write.task, write.index))
            arguments += [b"1" if write.index >= 0 else b"0", name, msgspec.msgpack.encode(kept)]
        await self._change(_PUT_WRITES, self._keys(place), arguments)

    async def get(self, place: ThreadPlace, checkpoint: bytes | None) -> FoundCheckpoint | None:
        wanted = [] if checkpoint is None else [checkpoint.hex()]
        found = await self._ask(_GET, self._keys(place), [_name(place), *wanted])
        return _found(place, found[0]) if found else None

    async def page(self, listing: CheckpointListing) -> list[FoundCheckpoint]:
        """Continues until the page is full: checkpoints deleted while listing must not make it look like the last."""
        found: list[FoundCheckpoint] = []
        places = await self._all_places(listing.thread, listing.namespace)
        while True:
            listed = [entry for place in places for entry in await self._latest(place, listing)]
            some = sorted(listed, reverse=True)[: listing.limit]
            for identity, thread, namespace in some:
                one = await self.get(ThreadPlace(thread, namespace), identity)
                if one is not None:
                    found.append(one)
                if len(found) == listing.limit:
                    return found
            if len(some) < listing.limit:
                return found
            listing = msgspec.structs.replace(listing, after=some[-1])

    async def _latest(
        self, place: ThreadPlace, listing: CheckpointListing
    ) -> list[tuple[bytes, bytes, bytes]]:
        """As many of this place as the page may hold, and one more, which may have been on the last page."""
        if listing.id is not None:
            ids = [listing.id]
        else:
            highest = "+" if listing.before is None else f"({listing.before.hex()}"
            if listing.after is not None:  # always below `before`, because the last page was
                highest = f"[{listing.after[0].hex()}"
            names = await self._reading(
                self._redis.zrevrangebylex(
                    self._key("i", place), highest, "-", start=0, num=listing.limit + 1
                )
            )
            if not names:
                # No checkpoint has this id; but if the list itself is gone, it is told.
                await self.get(place, b"")
            ids = [bytes.fromhex(name.decode()) for name in names]
        return [
            entry
            for identity in ids
            if (listing.before is None or identity < listing.before)
            and (listing.after is None or (identity, *place) < listing.after)
            for entry in [(identity, *place)]
        ]

    async def ancestors(
        self, place: ThreadPlace, checkpoint: bytes, prefixes: Sequence[bytes], limit: int
    ) -> list[FoundCheckpoint]:
        arguments = [_name(place), checkpoint.hex(), limit, *[prefix.hex() for prefix in prefixes]]
        found = await self._ask(_ANCESTORS, self._keys(place), arguments)
        return [_found(place, one) for one in found]

    async def ids(self, place: ThreadPlace) -> list[bytes]:
        listed = await self._reading(self._redis.zrange(self._key("i", place), 0, -1))
        return [bytes.fromhex(one.decode()) for one in listed]

    async def namespaces(self, thread: bytes) -> list[bytes]:
        return [place.namespace for place in await self._all_places(thread, None)]

    async def of_runs(self, runs: Sequence[bytes]) -> list[tuple[ThreadPlace, bytes]]:
        """Scans the links of all checkpoints, which are short."""
        wanted = {run.hex().encode() for run in runs if run}
        return [
            (place, bytes.fromhex(identity.decode()))
            for place in await self._all_places(None, None)
            for identity, links in (await self._reading(self._redis.hgetall(self._key("l", place)))).items()
            if links.split(b"|")[1] in wanted
        ]

    async def drop(self, place: ThreadPlace, checkpoints: Sequence[bytes]) -> None:
        await self._change(_DROP, self._keys(place), [_name(place), *[one.hex() for one in checkpoints]])

    async def delete_thread(self, thread: bytes) -> None:
        await self._change(_EVERY_PLACE, [self._stem, self._places], [thread.hex()])

    async def copy_thread(self, source: bytes, target: bytes) -> None:
        await self._change(_EVERY_PLACE, [self._stem, self._places], [source.hex(), target.hex()])

    async def close(self) -> None:
        """In a fork this does nothing: the connections belong to the parent."""
        if self._closed or not self._owner.may_close():
            return
        self._closed = True
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    # ---- names of keys

    @property
    def _places(self) -> str:
        return f"{self._stem}places"

    @property
    def _identity_key(self) -> str:
        return f"{self._stem}identity"

    def _keys(self, place: ThreadPlace) -> list[str]:
        """As the scripts name them; the last is how the keys of writes begin."""
        return [self._places, *[self._key(kind, place) for kind in "cilvne"], self._key("w", place) + ":"]

    def _key(self, kind: str, place: ThreadPlace) -> str:
        return f"{self._stem}{kind}:{_name(place)}"

    async def _all_places(self, thread: bytes | None, namespace: bytes | None) -> list[ThreadPlace]:
        if thread is not None and namespace is not None:
            return [ThreadPlace(thread, namespace)]
        names = [name.decode().split(":") for name in await self._reading(self._redis.smembers(self._places))]
        places = [ThreadPlace(bytes.fromhex(one), bytes.fromhex(other)) for one, other in names]
        return [
            place
            for place in places
            if (thread is None or place.thread == thread)
            and (namespace is None or place.namespace == namespace)
        ]

    # ---- calls

    async def _connected(self, connection: Any) -> None:
        """A new connection may lead to a different engine than before: a wiped volume, a swapped host."""
        await connection.on_connect()
        if self._identity is None:
            return
        await connection.send_command("HGET", self._identity_key, "identity")
        found = await connection.read_response()
        if found != self._identity.encode():
            await connection.disconnect()
            raise StoreReplaced(
                f"{self._address} is not the memory that was opened ({self._identity}): "
                f"{found.decode() if found else 'an empty one'} answers there. It was wiped, or replaced by another "
                "one. Open it again if that is intended"
            )

    async def _change(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        self._check_open()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._scripts[script](keys=keys, args=arguments)
        except exceptions.ResponseError as error:
            if was_denied(ReplyError(str(error))):
                raise OutcomeUnknown(f"{self._address}: {error}; stopped, maybe half-way") from error
            raise NotWritten(f"{self._address} refused: {error}; nothing was written") from error
        except (exceptions.RedisError, OSError) as error:
            raise OutcomeUnknown(f"{self._address}: {error}; written or not") from error

    async def _ask(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self._reading(self._scripts[script](keys=keys, args=arguments))

    async def _reading(self, answer: Any) -> Any:
        try:
            self._check_open()
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except RecollectError:
            answer.close()
            raise
        except exceptions.ResponseError as error:
            raise Unreadable(f"{self._address}: {error}") from error
        except (exceptions.RedisError, OSError) as error:
            raise EngineUnavailable(f"{self._address}: {error}") from error

    def _check_open(self) -> None:
        self._owner.check()
        if self._closed:
            raise StoreClosed("saver")


def _pairs(values: Mapping[bytes, bytes]) -> list[str | bytes]:
    return [part for ref, value in values.items() for part in (ref.hex(), value)]


def _name(place: ThreadPlace) -> str:
    return f"{place.thread.hex()}:{place.namespace.hex()}"


def _found(place: ThreadPlace, answer: Sequence[Any]) -> FoundCheckpoint:
    identity, kept, links, values, writes = answer
    row = msgspec.msgpack.decode(kept, type=_Kept)
    if row.links is not None and zlib.crc32(links) != row.links:
        raise Unreadable(WRONG_LINKS.format(text_of(bytes.fromhex(identity.decode()))))
    parent, run, refs = links.decode().split("|")
    return FoundCheckpoint(
        CheckpointRow(
            place,
            bytes.fromhex(identity.decode()),
            bytes.fromhex(parent) or None,
            bytes.fromhex(run) or None,
            [bytes.fromhex(ref) for ref in refs.split(",") if ref],
            row.checkpoint,
            row.metadata,
        ),
        {bytes.fromhex(ref.decode()): value for ref, value in zip(values[::2], values[1::2], strict=True)},
        [_pending(raw) for raw in writes[1::2]],
    )


def _pending(raw: bytes) -> PendingRow:
    write = msgspec.msgpack.decode(raw, type=_KeptWrite)
    return PendingRow(write.task, write.index, write.channel, write.path, write.value)
