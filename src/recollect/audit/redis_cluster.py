"""A Redis or Valkey Cluster, as an audit reads it: slot by slot, each slot from whoever has it now.

Slots are listed one chunk after another (CLUSTER GETKEYSINSLOT), which only looks at a node's own keys. A chunk counts
if nothing about its slots changed between two looks at the map; otherwise it is listed again. So a session that moves
is neither missed nor read twice, and a cursor, which is the number of a slot, is valid whoever serves it. A session's
reads follow MOVED and ASK; while some of its keys are here and some there (TRYAGAIN) it is asked again.

Besides what one server needs, the user needs ``+cluster|nodes +cluster|countkeysinslot +cluster|getkeysinslot``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from recollect.audit.finding import AuditFinding
from recollect.audit.redis import Elsewhere, Forbidden, RedisAudit
from recollect.audit.session_reading import SessionPiece
from recollect.audit.source import EngineFacts, SessionBatch, SessionRef
from recollect.errors import EngineUnavailable, Unreadable
from recollect.store import Options
from recollect.stores.redis import markers
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.cluster import ClusterServers
from recollect.stores.redis.slots import SLOTS, Node, Topology, ranges_shown, slot_of
from recollect.stores.redis.wire import Reply, ReplyError, pack

SLOTS_AT_ONCE = 4096
KEYS_AT_ONCE = 2000
"""Of a chunk of slots; a slot with more is a chunk of its own."""
_KEYS_MAX = 10_000_000
_RETRY_S = 0.05
HOPS_MAX = 3
"""Two nodes that each name the other are asked again only after a look at the map."""

T = TypeVar("T")


class ClusterAudit:
    engine = "redis-cluster"
    place = "cluster"
    """A cursor is valid whoever serves its slot."""
    total: int | None = None

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._map = ClusterServers(address, Options(timeout_s=timeout_s))
        """Only asked who owns what: it is never opened as a store."""
        self._topology = Topology()
        self._servers: dict[Node, RedisAudit] = {}
        self._moves: dict[tuple[Node, Node], set[int]] = {}
        self.identity: str | None = None

    @classmethod
    async def open(cls, url: str, timeout_s: float) -> ClusterAudit:
        audit = cls(parse_address(url), timeout_s)
        try:
            await audit._learn()
            audit.identity = _identity(await audit._markers())
        except BaseException:
            await audit.close()
            raise
        return audit

    async def close(self) -> None:
        for server in self._servers.values():
            await server.close()
        await self._map.close()

    # ---- what an audit asks

    async def batches(self, cursor: str) -> AsyncIterator[SessionBatch]:
        first = int(cursor or 0)
        while first < SLOTS:
            window = range(first, min(first + SLOTS_AT_ONCE, SLOTS))
            counted, counts = self._topology, await self._counts(window)
            for chunk in _chunks(counts):
                names = await self._listed(chunk, [slot for slot in chunk if counts[slot]], counted)
                yield await self._batch(str(chunk[-1] + 1), names)
            first = window.stop

    async def piece(self, ref: SessionRef, after: int) -> SessionPiece | None:
        return await self._at(self._slot(ref.key), lambda server: server.piece(ref, after))

    async def turns_over(self, ref: SessionRef, first: int, last: int) -> list[tuple[int, int]]:
        return await self._at(self._slot(ref.key), lambda server: server.turns_over(ref, first, last))

    async def number_of(self, key: bytes) -> int | None:
        return await self._at(self._slot(key), lambda server: server.number_of(key))

    async def position(self, key: bytes) -> int:
        return await self._at(self._slot(key), lambda server: server.position(key))

    async def facts(self) -> EngineFacts:
        """Of all primaries together."""
        if self.identity is None:  # a store may have been made since
            self.identity = _identity(await self._markers())
        each = [await (await self._server(node)).process_facts() for node in self._topology.primaries]
        return EngineFacts(
            self.identity,
            " ".join(one.run for one in each),
            max(one.started_at for one in each),
            evicted=sum(one.evicted for one in each),
            role="master",
        )

    async def facts_of(self, key: bytes) -> EngineFacts:
        """Of the server that has this session, and the identity that the marker beside it holds."""
        slot = self._slot(key)
        asked: list[str | None] = []

        async def look(server: RedisAudit) -> EngineFacts:
            facts = await server.process_facts(key)
            asked.append(server.shard)
            return facts

        facts = await self._at(slot, look)
        if asked != [_name(self._topology.owners[slot])]:
            await self._learn()
        index = self._marker_beside(slot)
        get = pack("GET", markers.name_of(self._address.prefix, index))
        [marker] = await self._at(markers.slots()[index], lambda server: server.ask(get))
        return msgspec.structs.replace(facts, identity=markers.identity_in(marker))

    def _marker_beside(self, slot: int) -> int:
        """The nearest one that the same server has; if it has none, the nearest."""
        owners, places = self._topology.owners, markers.slots()
        return min(
            range(markers.MARKERS),
            key=lambda index: (owners[places[index]] != owners[slot], abs(places[index] - slot)),
        )

    def owner_of(self, key: bytes) -> Node | None:
        """Who has this session, as far as is known."""
        return self._topology.owners[self._slot(key)]

    async def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        """Shards that lost their markers, and slots that changed hands."""
        found = await self._markers()
        yield markers.MARKERS, [*self._emptied(found), *self._moved()]

    # ---- whose it is

    async def _markers(self) -> list[Reply]:
        found: list[Reply] = []
        for index, slot in enumerate(markers.slots()):
            get = pack("GET", markers.name_of(self._address.prefix, index))
            found += await self._at(slot, lambda server, get=get: server.ask(get))  # type: ignore[misc]
        return found

    def _emptied(self, found: list[Reply]) -> list[AuditFinding]:
        """A marker that is missing where others are sealed was lost, with everything beside it."""
        if not markers.any_sealed(found):
            return []
        lost: dict[Node | None, set[str | None]] = {}
        for slot, reply in zip(markers.slots(), found, strict=True):
            if markers.identity_in(reply) != self.identity:
                lost.setdefault(self._topology.owners[slot], set()).add(markers.identity_in(reply))
        findings = []
        for node, others in lost.items():
            name = _name(node)
            told = " and ".join(sorted(other for other in others if other is not None))
            what = f"holds a part of another store, {told}" if told else "has lost markers of the store"
            sentence = (
                f"the shard at {name} (slots {self._topology.ranges_of(node) if node else '?'}) {what}: it was "
                "emptied, replaced or restored from elsewhere, and its sessions are gone"
            )
            findings.append(AuditFinding(name="emptied", sentence=sentence, shard=name))
        return findings

    # ---- where things are

    def _moved(self) -> list[AuditFinding]:
        findings = []
        for (source, target), slots in self._moves.items():
            which = "slot" if len(slots) == 1 else "slots"
            told = f"{which} {ranges_shown(sorted(slots))} moved from {_name(source)} to {_name(target)} meanwhile"
            findings.append(AuditFinding(name="moved", sentence=told, shard=_name(target)))
        return findings

    async def _learn(self) -> None:
        before, after = self._topology, await self._map.whole_topology()
        self._topology = after
        if before.owners != after.owners:
            for slot, (owner, now) in enumerate(zip(before.owners, after.owners, strict=True)):
                if owner is not None and now is not None and owner != now:
                    self._moves.setdefault((owner, now), set()).add(slot)
        for slot, ways in after.moving.items():
            for way in ways:
                self._moves.setdefault(way, set()).add(slot)

    def _slot(self, key: bytes) -> int:
        return slot_of(self._address.session_keys(key)[0].encode())

    async def _server(self, node: Node) -> RedisAudit:
        server = self._servers.get(node)
        if server is None:
            server = await RedisAudit.connected(self._address.at(node), self._timeout_s)
            server.shard = _name(node)
            self._servers[node] = server
        return server

    async def _drop(self, node: Node | None) -> None:
        server = self._servers.pop(node, None) if node is not None else None
        if server is not None:
            await server.close()

    async def _at(self, slot: int, call: Callable[[RedisAudit], Awaitable[T]]) -> T:
        """What the slot's server answers, wherever it is by now."""
        end = time.monotonic() + self._timeout_s
        node, asking, hops = self._topology.owners[slot], False, 0
        while True:
            try:
                if node is None:
                    raise EngineUnavailable(f"{self._address.shown}: nobody owns slot {slot}")
                server = await self._server(node)
                server.asking = asking
                try:
                    return await call(server)
                finally:
                    server.asking = False
            except Elsewhere as error:
                said: EngineUnavailable = error
                there = _there(error.reply, node)
            except Forbidden:
                raise
            except EngineUnavailable as error:
                said, there = error, None
                await self._drop(node)
            if time.monotonic() > end:
                raise EngineUnavailable(
                    f"slot {slot} cannot be read: {said}{self._still_moving(slot)}"
                ) from None
            if there is not None and hops < HOPS_MAX:
                (node, asking), hops = there, hops + 1
                continue
            await asyncio.sleep(_RETRY_S)
            await self._learn()
            node, asking, hops = self._topology.owners[slot], False, 0

    def _still_moving(self, slot: int) -> str:
        for source, target in self._topology.moving.get(slot, ()):
            return (
                f"; it is still moving from {_name(source)} to {_name(target)}: let the move end, or end it with "
                "redis-cli --cluster fix, and run the audit again"
            )
        return ""

    # ---- all sessions

    async def _counts(self, slots: Sequence[int]) -> dict[int, int]:
        """About how many keys each slot has; 0 only if it has none, and is not moving."""
        counts = dict.fromkeys(slots, 1)
        by_owner: dict[Node, list[int]] = {}
        for slot in slots:
            owner = self._topology.owners[slot]
            if owner is not None and slot not in self._topology.moving:
                by_owner.setdefault(owner, []).append(slot)
        for node, mine in by_owner.items():
            for slot, reply in (await self._each(node, "COUNTKEYSINSLOT", mine)).items():
                counts[slot] = reply if isinstance(reply, int) else 1
        return counts

    async def _listed(self, slots: Sequence[int], to_list: Sequence[int], before: Topology) -> list[bytes]:
        """The names of all keys of sessions in these slots; those not `to_list` were empty when `before` was true."""
        names: dict[bytes, None] = {}
        end = time.monotonic() + self._timeout_s
        while True:
            missed = await self._list(to_list, before, names)
            await self._learn()
            slots = to_list = [
                slot for slot in slots if slot in missed or before.state(slot) != self._topology.state(slot)
            ]
            before = self._topology
            if not slots:
                break
            if time.monotonic() > end:
                raise EngineUnavailable(f"{self._address.shown}: {len(slots):,} slots cannot be listed")
        begin = f"{self._address.prefix}:{{s".encode()
        return [name for name in names if name.startswith(begin) and name[-3:-1] == b"}:"]

    async def _list(self, slots: Sequence[int], topology: Topology, names: dict[bytes, None]) -> set[int]:
        """Adds the keys that each holder has, sources before targets; returns the slots that were not told."""
        missed: set[int] = set()
        for turn in range(max((len(topology.holders(slot)) for slot in slots), default=0)):
            for node, mine in self._by_node(topology, slots, turn).items():
                replies = await self._each(node, "GETKEYSINSLOT", mine, _KEYS_MAX)
                for slot in mine:
                    reply = replies.get(slot)
                    if isinstance(reply, list):
                        names.update(dict.fromkeys(name for name in reply if isinstance(name, bytes)))
                    else:
                        missed.add(slot)
        return missed

    @staticmethod
    def _by_node(topology: Topology, slots: Sequence[int], turn: int) -> dict[Node, list[int]]:
        """Whom to ask in this turn: the first holder of each slot, then the second."""
        found: dict[Node, list[int]] = {}
        for slot in slots:
            holders = topology.holders(slot)
            if turn < len(holders):
                found.setdefault(holders[turn], []).append(slot)
        return found

    async def _each(self, node: Node, question: str, slots: list[int], *more: int) -> dict[int, Reply]:
        """The node's answers about these slots; none if it does not answer."""
        try:
            server = await self._server(node)
            replies = await server.ask(*(pack("CLUSTER", question, slot, *more) for slot in slots))
        except Forbidden:
            raise
        except EngineUnavailable:
            await self._drop(node)
            return {}
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise Unreadable(f"{_name(node)}: CLUSTER {question}: {reply.text}")
        return dict(zip(slots, replies, strict=True))

    async def _batch(self, cursor: str, names: list[bytes]) -> SessionBatch:
        refs: list[SessionRef] = []
        findings: list[AuditFinding] = []
        counted = {self._address.session_key(name) for name in names if name.endswith(b":c")}
        for key in dict.fromkeys(map(self._address.session_key, names)):
            slot = self._slot(key)
            if key in counted:
                refs.append(SessionRef(key, shard=_name(self._topology.owners[slot])))
                continue
            name = self._address.session_keys(key)[0].encode()
            lonely, found = await self._at(slot, lambda server, name=name: server.without_counter([name]))  # type: ignore[misc]
            refs += lonely
            findings += found
        return SessionBatch(cursor, refs, tuple(findings))


def _chunks(counts: dict[int, int]) -> Iterator[list[int]]:
    """Consecutive slots with not too many keys together."""
    chunk: list[int] = []
    keys = 0
    for slot, count in counts.items():
        if chunk and keys + count > KEYS_AT_ONCE:
            yield chunk
            chunk, keys = [], 0
        chunk.append(slot)
        keys += count
    if chunk:
        yield chunk


def _identity(found: list[Reply]) -> str | None:
    """What most markers say: one shard may be another store's."""
    said = Counter(identity for reply in found if (identity := markers.identity_in(reply)) is not None)
    return said.most_common(1)[0][0] if said else None


def _there(reply: ReplyError, asked: Node | None) -> tuple[Node, bool] | None:
    """Where MOVED and ASK point to, and whether it has to be told that the slot is only on its way there."""
    words = reply.text.split()
    if reply.code not in ("MOVED", "ASK") or len(words) != 3:
        return None
    host, _, port = words[2].rpartition(":")
    return (host or (asked or ("", 0))[0], int(port)), reply.code == "ASK"


def _name(node: Node | None) -> str:
    return (
        "nobody" if node is None else f"[{node[0]}]:{node[1]}" if ":" in node[0] else f"{node[0]}:{node[1]}"
    )
