"""The slots of a cluster: which one a key is in, who owns it, and whether it is moving.

A cluster has 16,384 slots; each primary owns some. Every node has its own view of that (`CLUSTER NODES`). Views may
differ while something changes; the claim with the highest configuration epoch is the newest (Redis cluster
specification, "configuration epochs").
"""

from binascii import crc_hqx
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from string import ascii_letters

from recollect.stores.redis.wire import Reply

SLOTS = 16384

Node = tuple[str, int]
"""A host and a port."""


def slot_of(key: bytes) -> int:
    """CRC16 (XMODEM, which is binascii's) of the part in braces, if there is one and it is not empty."""
    start = key.find(b"{")
    if start >= 0 and (end := key.find(b"}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


_TWO = tuple(map("".join, product(ascii_letters, repeat=2)))


@cache
def _endings() -> dict[int, str]:
    """What two letters add to a slot."""
    return {crc_hqx(two.encode(), 0) % SLOTS: two for two in _TWO}


@cache
def tag_in(slot: int) -> str:
    """Some text that is in this slot. What letters at the end add to a CRC does not depend on what is before them."""
    for two in _TWO:
        tag = f"e{two}"
        ending = _endings().get(slot ^ crc_hqx(b"\0\0", crc_hqx(tag.encode(), 0)) % SLOTS)
        if ending is not None:
            return tag + ending
    raise AssertionError(f"no tag in slot {slot}")


@dataclass(frozen=True)
class Claim:
    """What one node's view says of one primary."""

    epoch: int
    node: Node
    ranges: tuple[tuple[int, int], ...]


@dataclass
class View:
    """The cluster as one node sees it."""

    claims: list[Claim] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    """All of them, replicas too."""
    names: dict[str, Node] = field(default_factory=dict)
    moving: list[tuple[int, str, str]] = field(default_factory=list)
    """Slots that are open at the node that was asked: the slot, the id of its source, the id of its target."""


def read_view(reply: Reply, asked: Node, *, by_hostname: bool) -> View | None:
    """The view in an answer to CLUSTER NODES; None if it is not one."""
    if not isinstance(reply, bytes):
        return None
    view = View()
    for line in reply.decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) < 8 or "noaddr" in words[2] or "handshake" in words[2]:
            continue
        name, flags = words[0], words[2].split(",")
        node = _address(words[1], asked, by_hostname=by_hostname)
        view.nodes.append(node)
        view.names[name] = node
        owned = tuple(_range(word) for word in words[8:] if not word.startswith("["))
        if owned and "master" in flags:
            view.claims.append(Claim(int(words[6]), node, owned))
        for word in words[8:]:
            if word.startswith("["):
                slot, arrow, other = word[1:-1].replace("->-", " > ").replace("-<-", " < ").split()
                source, target = (name, other) if arrow == ">" else (other, name)
                view.moving.append((int(slot), source, target))
    return view


def of_one_cluster(views: Iterable[View]) -> list[list[View]]:
    """The views that own slots, by cluster: nodes of one know each other by id, nodes of two never do. Addresses may
    be given to another cluster's node meanwhile."""
    clusters: list[list[View]] = []
    for view in views:
        if view.claims:
            mine = [
                cluster
                for cluster in clusters
                if any(view.names.keys() & one.names.keys() for one in cluster)
            ]
            clusters = [cluster for cluster in clusters if cluster not in mine]
            clusters.append([*(one for cluster in mine for one in cluster), view])
    return clusters


def _range(word: str) -> tuple[int, int]:
    first, _, last = word.partition("-")
    return int(first), int(last or first)


def _address(text: str, asked: Node, *, by_hostname: bool) -> Node:
    """From `ip:port@bus,hostname`. A node that does not know its own address leaves it out: it is the one asked."""
    place, _, more = text.partition("@")
    hostname = more.partition(",")[2].partition(",")[0]
    host, _, port = place.rpartition(":")
    return (by_hostname and hostname) or host or asked[0], int(port)


def ranges_shown(slots: Iterable[int]) -> str:
    """Slots in order, as people write them: ``0-5460, 16000``."""
    ranges: list[list[int]] = []
    for slot in slots:
        if ranges and ranges[-1][1] == slot - 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")


class Topology:
    """Several views, put together."""

    def __init__(self, views: Iterable[View] = ()) -> None:
        self._epochs = [-1] * SLOTS
        self.owners: list[Node | None] = [None] * SLOTS
        self.nodes: list[Node] = []
        self.moving: dict[int, set[tuple[Node, Node]]] = {}
        """Slots that are open: from where, to where."""
        views = list(views)
        names = {name: node for view in views for name, node in view.names.items()}
        self.ids = frozenset(name for view in views if view.claims for name in view.names)
        claims = {claim for view in views for claim in view.claims}
        for claim in sorted(claims, key=lambda claim: claim.epoch):
            for first, last in claim.ranges:
                self.owners[first : last + 1] = [claim.node] * (last + 1 - first)
                self._epochs[first : last + 1] = [claim.epoch] * (last + 1 - first)
        self.nodes = list(dict.fromkeys(node for view in views for node in view.nodes))
        for view in views:
            for slot, source, target in view.moving:
                if source in names and target in names:
                    self.moving.setdefault(slot, set()).add((names[source], names[target]))

    @property
    def primaries(self) -> list[Node]:
        return list(dict.fromkeys(node for node in self.owners if node is not None))

    @property
    def is_complete(self) -> bool:
        return None not in self.owners

    def ranges_of(self, node: Node) -> str:
        """Its slots, as people write them: ``0-5460, 16000``."""
        owned = [slot for slot, owner in enumerate(self.owners) if owner == node]
        return ranges_shown(owned)

    def state(self, slot: int) -> tuple[object, ...]:
        """Whatever changes when the slot's keys move, or its owner does."""
        return self.owners[slot], self._epochs[slot], frozenset(self.moving.get(slot, ()))

    def holders(self, slot: int) -> list[Node]:
        """Where its keys are, each source before its target: a key that moves meanwhile is seen here or there."""
        owner = self.owners[slot]
        sources = [source for source, _ in self.moving.get(slot, ())]
        targets = [target for _, target in self.moving.get(slot, ())]
        return [node for node in dict.fromkeys([*sources, owner, *targets]) if node is not None]
