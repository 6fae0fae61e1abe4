"""A Redis or Valkey Cluster on loopback: three primaries with a third of the slots each, and a replica of each.

The topology is written into each node's nodes.conf before the first start: no MEET, no gossip, no election. What would
be left is the engine's own delay: a primary takes no writes for two seconds after its start (CLUSTER_WRITABLE_DELAY).
A replica has no such delay, and keeps none when it is promoted. So in a new cluster the nodes that are to be primaries
begin as replicas of their later replicas, and take over as soon as they answer, before there is any data. Every later
start of the same cluster has the delay, as a real one has.

The node timeout is one second instead of fifteen, so that a failover fits into a cell; what is lost before anybody
notices is in proportion to it.

`Mesh` can stand between the nodes: then one of them can be cut off from the others while clients still reach it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from recollect import private
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.mesh import Mesh
from recollect.verify.engines.meshed import MeshedGroup
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.redis import GROUP_POLICIES, RedisEngine
from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.ports import Reservation
from recollect.verify.providers.build import Build
from recollect.verify.wire.resp import RespError, fields_of

SLOTS = 16384
PRIMARIES = 3
REPLICAS = 1
"""Of each primary."""
NODE_TIMEOUT_MS = 1000
NODES_FILE = "nodes.conf"


class ClusterNode(RedisEngine):
    """One node. `seen` and `seen_bus` are the ports that others are told; a proxy may listen there."""

    policies = GROUP_POLICIES

    def __init__(self, build: Build, options: EngineOptions, password: str | None = None) -> None:
        super().__init__(build, options)
        self._own_password = password or self._own_password
        self._bus = Reservation()
        self.seen, self.seen_bus = self.port, self._bus.port
        self.id = hashlib.sha1(f"node {self.bus}".encode(), usedforsecurity=False).hexdigest()

    @property
    def bus(self) -> int:
        return self._bus.port

    @property
    def own_password(self) -> str:
        return self._own_password

    @property
    def url(self) -> str:
        return self.endpoint.url.replace(f":{self.port}/", f":{self.seen}/").removesuffix("/0")

    def _further_lines(self) -> list[str]:
        user, password = self._login
        return [
            "cluster-enabled yes",
            f"cluster-config-file {NODES_FILE}",
            f"cluster-node-timeout {NODE_TIMEOUT_MS}",
            f"cluster-port {self.bus}",
            f"cluster-announce-ip {ports.HOST}",
            f"cluster-announce-port {self.seen}",
            f"cluster-announce-bus-port {self.seen_bus}",
            *([f"masteruser {user}"] if user else []),
            *([f'masterauth "{password}"'] if password else []),
        ]

    def info(self, section: str) -> dict[str, str]:
        return fields_of(self.ask(*(("CLUSTER", "INFO") if section == "cluster" else ("INFO", section))))

    def empty(self) -> None:
        """Removes its data, but not what it knows about the cluster, as if the node got a new disk."""
        known = (self._data / NODES_FILE).read_text()
        self.wipe()
        self._data.mkdir(0o700, parents=True, exist_ok=True)
        private.write_artifact(self._data / NODES_FILE, known)

    def close(self) -> None:
        super().close()
        self._bus.close()


class RedisClusterEngine(MeshedGroup[ClusterNode]):
    name = "redis-cluster"
    policies = GROUP_POLICIES
    default_policy = "aof-everysec"
    primaries_count = PRIMARIES
    replicas_count = REPLICAS
    _has_stand_ins = False
    """Whether the primaries of a new cluster still have to take over from their replicas."""

    def _make_servers(self) -> None:
        if self.product == "Redis" and int(self.version.split(".")[0]) < 7:
            raise EngineError(
                f"{self.name} needs Redis 7 or newer, or Valkey: {self.version} cannot choose its bus port; "
                "ask for redis-cluster@7 or valkey-cluster"
            )
        self._add_missing_servers()

    def _add_missing_servers(self) -> None:
        while len(self.servers) < self.primaries_count * (1 + self.replicas_count):
            password = self.servers[0].own_password if self.servers else None
            self.servers.append(ClusterNode(self.build, self.options, password))

    def add_replicas(self) -> None:
        """One more of each primary; call it before the first start."""
        self.replicas_count += 1
        self._add_missing_servers()

    def put_proxies_between(self) -> None:
        """Call it before the first start, and `isolate` works. Clients' requests go through a proxy as well."""
        self._mesh = mesh = Mesh()
        for node in self.servers:
            node.seen, node.seen_bus = mesh.stand_before(node.id, node.port, node.bus)

    def _prepare(self) -> None:
        new = [node for node in self.servers if not (node.data / NODES_FILE).exists()]
        self._has_stand_ins = self.replicas_count > 0 and new == self.servers
        for node in new:
            node.data.mkdir(0o700, parents=True, exist_ok=True)
            private.write_artifact(node.data / NODES_FILE, self._topology(node))

    def _topology(self, me: ClusterNode) -> str:
        lines = []
        for index, node in enumerate(self.servers):
            shard = index % self.primaries_count
            primary = self.servers[shard + self.primaries_count * self._has_stand_ins]
            role, above = ("master", "-") if node is primary else ("slave", primary.id)
            first, end = (SLOTS * place // self.primaries_count for place in (shard, shard + 1))
            lines.append(
                f"{node.id} {ports.HOST}:{node.seen}@{node.seen_bus} {'myself,' if node is me else ''}{role} {above} "
                f"0 0 {shard + 1} {'connected' if node is me else 'disconnected'}"
                + (f" {first}-{end - 1}" if node is primary else "")
            )
        return "\n".join([*lines, f"vars currentEpoch {self.primaries_count} lastVoteEpoch 0", ""])

    def _not_taken_over(self) -> str | None:
        """Lets the primaries of a new cluster take over from their replicas; says what is missing until all know it."""
        for epoch, node in enumerate(self.servers[: self.primaries_count], self.primaries_count):
            if node.info("replication")["role"] == "master":
                continue
            # Each takes the next epoch that it knows of: one after the other, or two would take the same.
            if int(node.info("cluster")["cluster_current_epoch"]) < epoch:
                return f"{node.folder.name} did not hear that the primary before it took over"
            self.ask_to_fail_over(node, "takeover")
        for node in self.servers:
            primaries = {line[0] for line in self.view(node) if "master" in line[2]}
            followed = {line[3] for line in self.view(node) if "slave" in line[2]}
            if len(primaries) != self.primaries_count or not followed <= primaries:
                return f"{node.folder.name} did not hear which nodes are primaries"
        return None

    def _missing(self) -> str | None:
        if self._has_stand_ins and (missing := self._not_taken_over()) is not None:
            return missing
        self._has_stand_ins = False
        living = [node for node in self.servers if node.alive()]
        for node in living:
            if node.info("cluster")["cluster_state"] != "ok":
                return f"{node.folder.name} says that the cluster is down"
            if self._roles(node, living) != self._roles(living[0], living):
                return f"{node.folder.name} and {living[0].folder.name} do not agree on who follows whom"
            replication = node.info("replication")
            if replication["role"] == "slave" and replication["master_link_status"] != "up":
                return f"{node.folder.name} has no link to its primary"
        return None

    def _roles(self, asked: ClusterNode, of: list[ClusterNode]) -> dict[str, tuple[bool, str]]:
        """Whether each is a primary in this node's eyes, and whom it follows."""
        roles = {line[0]: ("master" in line[2], line[3]) for line in self.view(asked)}
        return {node.id: roles[node.id] for node in of if node.id in roles}

    def _endpoint_now(self) -> Endpoint:
        first = self.servers[0].endpoint
        auth = first.url.removeprefix("redis://").rpartition("@")[0]
        places = ",".join(f"{ports.HOST}:{node.seen}" for node in self.servers)
        url = f"redis+cluster://{auth}{'@' if auth else ''}{places}"
        return self._reached_at(first, url, self.servers[0].seen, tuple(node.url for node in self.servers))

    # What faults do to it -------------------------------------------------------------------------

    def view(self, asked: ClusterNode | None = None) -> list[list[str]]:
        """The lines of CLUSTER NODES, as a running node sees them."""
        node = asked or self.others()[0]
        return [line.split() for line in str(node.ask("CLUSTER", "NODES")).splitlines()]

    def primaries(self, asked: ClusterNode | None = None) -> list[ClusterNode]:
        """Those with slots, in the order of the slots."""
        lines = [line for line in self.view(asked) if "master" in line[2] and _ranges(line)]
        by_id = {node.id: node for node in self.servers}
        return [by_id[line[0]] for line in sorted(lines, key=lambda line: _ranges(line)[0])]

    def replicas_of(self, primary: ClusterNode) -> list[ClusterNode]:
        by_id = {node.id: node for node in self.servers}
        return [by_id[line[0]] for line in self.view() if "slave" in line[2] and line[3] == primary.id]

    def slots_of(self, primary: ClusterNode) -> list[int]:
        [line] = [line for line in self.view(primary) if line[0] == primary.id]
        return [slot for first, last in _ranges(line) for slot in range(first, last + 1)]

    def has_successor(self, old: ClusterNode) -> bool:
        """Whether the nodes that answer have agreed on another primary for the slots of this one."""
        try:
            return all(old not in self.primaries(node) for node in self.others(old))
        except (OSError, RespError):
            return False

    def ask_to_fail_over(self, replica: ClusterNode, how: str = "") -> None:
        """By hand: `how` is nothing, force (without asking the primary) or takeover (without asking anybody)."""
        replica.ask("CLUSTER", "FAILOVER", *([how.upper()] if how else []))

    def isolate(self, node: ClusterNode) -> None:
        """Cuts it off from all other nodes; clients still reach it. What was sent and not delivered waits."""
        self._proxies.cut(node.id, [other.id for other in self.servers if other is not node])

    def _name_of(self, server: ClusterNode) -> str:
        return server.id

    def move_slot(self, slot: int, source: ClusterNode, target: ClusterNode) -> Iterable[None]:
        """Moves a slot as redis-cli does, key by key; yields between two keys, while the slot is open."""
        target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", target.id)
        user, password = target.endpoint.user, target.endpoint.password
        auth = ("AUTH2", user or "default", password) if password else ()
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "1"):
            yield
            assert isinstance(keys, list)
            source.ask(
                "MIGRATE", ports.HOST, str(target.port), "", "0", "5000", *auth, "KEYS", *map(str, keys)
            )
        for node in (
            target,
            source,
            *(other for other in self.primaries(target) if other not in (source, target)),
        ):
            node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", target.id)

    @property
    def moves_slots_itself(self) -> bool:
        """Whether it has CLUSTER MIGRATESLOTS."""
        return self.product == "Valkey" and int(self.version.split(".")[0]) >= 9

    def migrate_slot(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        """Begins to move a slot as Valkey 9 does, in one step; `owns` says when it is done."""
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", str(slot), str(slot), "NODE", target.id)

    def owns(self, node: ClusterNode, slot: int) -> bool:
        """In the eyes of all that answer."""
        return all(
            any(
                line[0] == node.id and first <= slot <= last
                for line in self.view(asked)
                for first, last in _ranges(line)
            )
            for asked in self.others()
        )


def _ranges(line: Sequence[str]) -> list[tuple[int, int]]:
    """The slots in a line of CLUSTER NODES; those that are moving are in brackets, and belong to their source."""
    found = [re.fullmatch(r"(\d+)(?:-(\d+))?", word) for word in line[8:]]
    return [(int(match[1]), int(match[2] or match[1])) for match in found if match]
