"""A Redis or Valkey Cluster: sessions spread over primaries by slot, each primary with its own group commit.

The map of slots is learnt from all nodes at once, and the newest claim counts (`slots`). Redirections, retries and
servers that hang are dealt with in `routed`; this module knows who owns what, whose memory it is, and how to list all
sessions while some of them move.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from functools import partial

from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable, StoreReplaced
from recollect.store import Options
from recollect.stores.redis import markers
from recollect.stores.redis.address import Address
from recollect.stores.redis.errors import not_connected, read_refused
from recollect.stores.redis.routed import RETRY_MAX_S, RoutedServers, together
from recollect.stores.redis.servers import (
    PROBE_LIFE_MS,
    check_answered,
    once_replicas_are_there,
    scan_server,
)
from recollect.stores.redis.shard import Guard
from recollect.stores.redis.slots import Node, Topology, View, of_one_cluster, read_view
from recollect.stores.redis.wire import Reply, ReplyError, pack

_GRACE_S = 0.25
"""How long to wait for slower nodes once one has answered."""
_SLOTS_AT_ONCE = 500
_KEYS_MAX = 1_000_000
_COPY_WAIT_MS = 200


class ClusterServers(RoutedServers):
    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._topology = Topology()
        self._redirected: dict[int, Node] = {}
        """What MOVED said since the map was last learnt."""
        self._identity: str | None = None
        self._error: CannotOpen | None = None

    async def open(self) -> str:
        end = time.monotonic() + self._options.timeout_s
        await self._learn()
        self._watch()
        while True:
            try:
                self._check_complete()
                await together(*(self._shard(node).open() for node in self._serving()))
                break
            except EngineUnavailable:  # a failover, or a cluster that is only just starting
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(RETRY_MAX_S)
            await self.learn()
        await self.check_rights()
        self._identity = await self._identify(end)
        return self._identity

    def _check_complete(self) -> None:
        """Raises if nobody answers, or nobody owns some of the slots."""
        if self._topology.is_complete:
            return
        if self._error is not None and not isinstance(self._error, EngineUnavailable):
            raise self._error  # waiting would not help
        if not self._topology.nodes:
            raise EngineUnavailable(f"{self._address.shown}: no node answers ({self._error})")
        free = self._topology.owners.count(None)
        raise EngineUnavailable(f"{self._address.shown}: nobody owns {free:,} of the cluster's slots")

    # ---- who owns what

    def _owner(self, slot: int) -> Node | None:
        return (self._redirected.get(slot) if self._redirected else None) or self._topology.owners[slot]

    def _moved(self, slot: int, node: Node) -> None:
        self._redirected[slot] = node

    def _serving(self) -> list[Node]:
        return list(dict.fromkeys([*self._topology.primaries, *self._redirected.values()]))

    async def _learn(self) -> None:
        views = await self._views()
        if views:
            self._topology = Topology(views.values())
            self._redirected.clear()

    async def _views(self, *, whole: bool = False) -> dict[Node, View]:
        """The views of the nodes that answer; of all of them if `whole`, else of those that answer soon."""
        known = dict.fromkeys([*self._topology.nodes, *self._address.nodes])
        views: dict[Node, View] = {}

        async def look(node: Node) -> None:
            try:
                reply = await self._scouts.ask(node, self._address.at(node), pack("CLUSTER", "NODES"))
            except Exception as error:  # another one may know
                self._error = not_connected(error, self._address.at(node).shown)
                return
            view = read_view(reply, node, by_hostname=self._address.has_tls)
            if view is None:
                self._error = _no_cluster(reply, self._address.at(node))
            else:
                views[node] = view

        tasks = [asyncio.create_task(look(node)) for node in known]
        try:
            _, late = await asyncio.wait(tasks, timeout=None if whole else _GRACE_S)
            while late and not views:
                _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return self._ours({node: views[node] for node in known if node in views})

    def _ours(self, views: dict[Node, View]) -> dict[Node, View]:
        """Without those of another cluster, whose claims would be mixed with ours; none if there is no telling."""
        clusters = of_one_cluster(views.values())
        known = [one for one in clusters if any(self._topology.ids & view.names.keys() for view in one)]
        if len(known) == 1:
            return {node: view for node, view in views.items() if not view.claims or view in known[0]}
        if len(clusters) < 2:  # if it is a stranger, our own nodes may only be slow
            return views if all(node in views for node in self._topology.nodes) else {}
        places = [[f"{node[0]}:{node[1]}" for node, view in views.items() if view in one] for one in clusters]
        self._error = CannotOpen(
            f"{self._address.shown}: these are nodes of {len(clusters)} clusters "
            f"({' and '.join(', '.join(one) for one in places)}); name the nodes of one"
        )
        return {}

    # ---- whose it is

    async def _identify(self, end: float) -> str:
        """The identity in all markers; creates it for a new store, and refuses a store that has lost a shard."""
        found = await self._markers()
        identities = {markers.identity_in(reply) for reply in found} - {None}
        if len(identities) > 1:
            told = " and ".join(sorted(map(str, identities)))
            raise StoreReplaced(
                f"{self._address.shown}: parts of it belong to different stores, {told}: a shard was replaced, or "
                "restored from elsewhere"
            )
        if markers.any_sealed(found) and None in found and not self._address.accepts_losses:
            raise StoreReplaced(self._lost([index for index, reply in enumerate(found) if reply is None]))
        if all(markers.is_sealed(reply) for reply in found):
            return str(identities.pop())
        return await self._give_identity(str(identities.pop()) if identities else str(uuid.uuid4()), end)

    async def _give_identity(self, proposed: str, end: float) -> str:
        """The first marker decides, if several stores open at once. Sealed only when all are there."""
        slot = markers.slots()[0]
        name = markers.name_of(self._address.prefix, 0)
        await once_replicas_are_there(partial(self.ask, slot, pack("SET", name, proposed, "NX"), 1), end)
        identity = markers.identity_in(await self._each(pack("GET", name), slot)) or proposed
        for value, option in ((identity, ("NX",)), (markers.sealed(identity), ())):
            requests = [
                (slot, pack("SET", markers.name_of(self._address.prefix, index), value, *option))
                for index, slot in enumerate(markers.slots())
            ]
            await once_replicas_are_there(partial(self.ask_each, requests), end)
        for node in self._serving():  # a copy that takes over a moment later should know them too
            await self._shard(node).ask(pack("WAIT", 1, _COPY_WAIT_MS), 1)
        return identity

    async def _each(self, request: bytes, slot: int) -> Reply:
        [reply] = await self.ask(slot, request, 1)
        return reply

    async def _markers(self) -> list[Reply]:
        replies = await self.ask_each(
            [(markers.slots()[index], self._get(index)) for index in range(markers.MARKERS)]
        )
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise read_refused(reply)
        return replies

    def _get(self, index: int) -> bytes:
        return pack("GET", markers.name_of(self._address.prefix, index))

    def _lost(self, missing: Iterable[int]) -> str:
        places = dict.fromkeys(self._owner(markers.slots()[index]) for index in missing)
        shown = " and ".join(
            f"{node[0]}:{node[1]} (slots {self._topology.ranges_of(node)})"
            for node in places
            if node is not None
        )
        return (
            f"{self._address.shown}: the shard at {shown} is not what it was: it was emptied, or replaced by "
            "another one, and its sessions are gone. To go on with the others, open it once with ?replaced=accept"
        )

    async def check_same(self, slot: int) -> None:
        node = self._owner(slot)
        if node is not None:
            guard = self._guard(node)
            replies = await self._shard(node).ask(*guard.question())
            guard.check_readable(replies)
            guard.check_replaced(replies)

    async def check_all(self) -> None:
        self.check_markers(list(range(markers.MARKERS)), await self._markers())

    def _guard(self, node: Node) -> Guard:
        return _MarkerGuard(self, node)

    def markers_at(self, node: Node) -> list[int]:
        return [index for index, slot in enumerate(markers.slots()) if self._owner(slot) == node]

    def check_markers(self, indices: list[int], replies: list[Reply]) -> None:
        if self._identity is None:
            return
        lost = [
            index
            for index, reply in zip(indices, replies, strict=True)
            if not isinstance(reply, ReplyError) and markers.identity_in(reply) != self._identity
        ]
        if lost:
            owners = {self._owner(markers.slots()[index]) for index in lost}
            for node, shard in self._shards.items():
                if node in owners:
                    shard.look_again()  # it refuses the sessions that were not used yet, too
            raise StoreReplaced(self._lost(lost))

    @property
    def address(self) -> Address:
        return self._address

    # ---- all sessions

    async def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        """Node by node; then, slot by slot, whatever moved or changed hands meanwhile, until nothing does."""
        before = await self.whole_topology()
        failed: set[Node] = set()
        for node in before.primaries:
            try:
                async for names in scan_server(self._shard(node), kind, start, attempts=1):
                    yield names
            except (EngineUnavailable, CannotOpen) as error:
                if isinstance(error, StoreReplaced):
                    raise
                failed.add(node)
        after = await self.whole_topology()
        doubtful = [
            slot
            for slot, owner in enumerate(before.owners)
            if before.state(slot) != after.state(slot) or slot in after.moving or owner in failed
        ]
        end = time.monotonic() + self._options.timeout_s
        while doubtful:
            before = after
            missed: set[int] = set()
            for place in range(0, len(doubtful), _SLOTS_AT_ONCE):
                found = await self._slots_now(doubtful[place : place + _SLOTS_AT_ONCE], before, missed)
                yield [name for name in found if self._address.is_session(name, kind, start)]
            after = await self.whole_topology()
            changed = [slot for slot in doubtful if before.state(slot) != after.state(slot) or slot in missed]
            if len(changed) < len(doubtful):
                end = time.monotonic() + self._options.timeout_s
            elif time.monotonic() > end:
                raise EngineUnavailable(f"{self._address.shown}: {len(changed):,} slots cannot be listed")
            doubtful = changed

    async def whole_topology(self) -> Topology:
        """What all primaries say of themselves: only they know which of their slots are moving."""
        end = time.monotonic() + self._options.timeout_s
        while True:
            views = await self._views(whole=True)
            if views:  # these name nodes that the address does not, and that are asked next
                self._topology = Topology(views.values())
                self._redirected.clear()
            topology = self._topology
            if topology.is_complete and all(node in views for node in topology.primaries):
                return topology
            if time.monotonic() > end:
                raise EngineUnavailable(
                    f"{self._address.shown}: not every primary answers"
                    f"{f' ({self._error})' if self._error else ''}, so not all sessions can be listed"
                )
            await asyncio.sleep(_GRACE_S / 10)

    async def _slots_now(self, slots: list[int], topology: Topology, missed: set[int]) -> list[bytes]:
        """The names of all keys in these slots, asked of each holder in turn; `missed` collects the slots that cannot
        be listed."""
        names: list[bytes] = []
        holders = {slot: topology.holders(slot) for slot in slots}
        for turn in range(max(map(len, holders.values()), default=0)):
            by_node: dict[Node, list[int]] = {}
            for slot, nodes in holders.items():
                if turn < len(nodes):
                    by_node.setdefault(nodes[turn], []).append(slot)
            for node, mine in by_node.items():
                request = b"".join(pack("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_MAX) for slot in mine)
                try:
                    replies = await self._shard(node).ask(request, len(mine), attempts=1)
                except (EngineUnavailable, CannotOpen):
                    missed.update(mine)
                    continue
                for slot, reply in zip(mine, replies, strict=True):
                    if isinstance(reply, list):
                        names += [name for name in reply if isinstance(name, bytes)]
                    else:
                        missed.add(slot)
        return names


class _MarkerGuard:
    """Whether a node is still this store's: by the markers in its slots."""

    def __init__(self, servers: ClusterServers, node: Node) -> None:
        self._servers = servers
        self._node = node
        self._asked: list[int] = []

    def question(self) -> tuple[bytes, int]:
        # A node that has only just taken over is not on the map: it is asked for all slots, and answers for its own.
        self._asked = self._servers.markers_at(self._node) or list(range(markers.MARKERS))
        prefix = self._servers.address.prefix
        gets = [pack("GET", markers.name_of(prefix, index)) for index in self._asked]
        return b"".join(gets), len(gets)

    def check_readable(self, replies: list[Reply]) -> None:
        """A node that cannot answer yet may be empty: its connection is not used until it has answered."""
        for reply in replies:
            told_later = ("MOVED", "ASK", "TRYAGAIN", "NOPERM")
            check_answered(reply, self._servers.address.at(self._node), told_later=told_later)

    def check_replaced(self, replies: list[Reply]) -> None:
        self._servers.check_markers(self._asked[: len(replies)], replies)

    def probe(self) -> bytes:
        mine = self._servers.markers_at(self._node)
        tag = markers.tags()[mine[0] if mine else 0]
        return pack("SET", f"{self._servers.address.prefix}:{{{tag}}}:probe", "1", "PX", PROBE_LIFE_MS)


def _no_cluster(reply: Reply, address: Address) -> CannotOpen:
    if isinstance(reply, ReplyError) and "cluster support disabled" in reply.text:
        return CannotOpen(f"{address.shown} is no node of a cluster; open it as {address.shown}")
    if isinstance(reply, ReplyError) and "unknown command" in reply.text:
        return CannotOpen(
            f"{address.shown} does not know CLUSTER NODES; if it is a Sentinel, open the service it watches: "
            f"{address.shown.replace('://', '+sentinel://', 1)}/SERVICE"
        )
    if isinstance(reply, ReplyError) and reply.code == "NOAUTH":
        return CredentialsRefused(address.shown, reply.text)
    if isinstance(reply, ReplyError) and reply.code == "NOPERM":
        return CannotOpen(
            f"{address.shown}: its user may not run CLUSTER NODES, which the store needs: {reply.text}"
        )
    return EngineUnavailable(f"{address.shown} does not answer CLUSTER NODES: {reply!r}")
