"""The keys of a Redis that others use too: of one server, or of a cluster, whose keys are spread over its primaries.

Nothing here blocks a server for long: keys are found with SCAN, and removed with UNLINK in batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from recollect.verify.host.errors import EngineError
from recollect.verify.wire import resp

_BATCH = 500
_HOPS_MAX = 8
"""Redirections for one key, before whoever sends us round is taken at its word that it has no owner."""
_OPEN_SLOT_S = 10.0
"""How long a slot may be without an owner, or open, until we give up."""
_POLL_S = 0.05

Node = tuple[str, int]


class RedisKeys:
    """Of one server."""

    passes = 1
    """How often keys are looked for until none is found."""
    nodes: Sequence[Node] = ()
    """Of a cluster: primaries first."""

    def __init__(self, address: resp.Address) -> None:
        self.address = address
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(resp.Connection(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def ask(self, *words: str) -> resp.Reply:
        """A command without a key."""
        return self._connection.ask(*words)

    def time(self) -> float:
        match self.ask("TIME"):
            case [str() as seconds, str()]:
                return float(seconds)
            case reply:
                raise EngineError(f"TIME was answered with {reply!r}, not with seconds and microseconds")

    def text_at(self, key: str) -> str | None:
        try:
            value = self._of_key("GET", key)
        except resp.RespError:  # a hash or a list: nothing we wrote
            return None
        return value if isinstance(value, str) else None

    def set(self, key: str, value: str, when: str) -> bool:
        """`when` is NX or XX."""
        return self._of_key("SET", key, value, when) == "OK"

    def any_exists(self, keys: Sequence[str]) -> bool:
        return self._connection.ask("EXISTS", *keys) != 0

    def unlink(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _BATCH):
            self._connection.ask("UNLINK", *keys[first : first + _BATCH])

    def scanned(self, pattern: str) -> Iterator[list[str]]:
        """All keys that match, some of them twice."""
        yield from _scanned(self._connection, pattern)

    def scan(self, pattern: str) -> list[str]:
        return sorted({key for batch in self.scanned(pattern) for key in batch})

    def _of_key(self, command: str, key: str, *words: str) -> resp.Reply:
        return self._connection.ask(command, key, *words)


class ClusterKeys(RedisKeys):
    """Of a cluster. `seeds` are some of its nodes; the first that answers knows the others.

    A key that moves during a SCAN may be seen nowhere, so whoever removes keys looks several times.
    """

    passes = 5

    def __init__(self, seeds: Sequence[resp.Address]) -> None:
        super().__init__(first_that_answers(seeds))
        self._connections: dict[Node, resp.Connection] = {}
        try:
            self._learn()
        except BaseException:
            self._stack.close()
            raise

    def any_exists(self, keys: Sequence[str]) -> bool:
        return any(self._of_key("EXISTS", key) != 0 for key in keys)

    def unlink(self, keys: Sequence[str]) -> None:
        for key in keys:  # in different slots, one command could not have them all
            self._of_key("UNLINK", key)

    def scanned(self, pattern: str) -> Iterator[list[str]]:
        self._learn()
        for node in self._primaries:
            yield from _scanned(self._at(node), pattern)

    def _learn(self) -> None:
        """Who has the slots now."""
        primaries: list[Node] = []
        replicas: list[Node] = []
        slots = self.ask("CLUSTER", "SLOTS")
        for part in slots if isinstance(slots, list) else []:
            match part:
                case [int(), int(), [host, int() as port, *_], *others]:
                    primaries.append(self._node(host, port))
                    copies = [other for other in others if isinstance(other, list)]
                    replicas += [self._node(copy[0], int(str(copy[1]))) for copy in copies]
                case _:
                    raise EngineError(f"CLUSTER SLOTS was answered with {part!r}, not with slots and nodes")
        if not primaries:
            raise EngineError(
                "no node of this cluster has slots: give them out with redis-cli --cluster create"
            )
        self._primaries = list(dict.fromkeys(primaries))
        self.nodes = list(dict.fromkeys([*primaries, *replicas]))

    def _node(self, host: object, port: int) -> Node:
        """A node that does not know its own name is where it was asked."""
        return (str(host) if host not in (None, "", "?") else self.address.host, port)

    def _at(self, node: Node) -> resp.Connection:
        if node not in self._connections:
            host, port = node
            at = replace(self.address, host=host, port=port)
            self._connections[node] = self._stack.enter_context(resp.Connection(at))
        return self._connections[node]

    def _of_key(self, command: str, key: str, *words: str) -> resp.Reply:
        """Follows redirections: any node knows who has the key."""
        connection, hops, give_up = self._connection, 0, time.monotonic() + _OPEN_SLOT_S
        while True:
            try:
                return connection.ask(command, key, *words)
            except resp.RespError as error:
                kind, _, rest = str(error).partition(" ")
                hops += 1
                if kind in ("MOVED", "ASK") and hops <= _HOPS_MAX:
                    host, _, port = rest.partition(" ")[2].rpartition(":")
                    connection = self._at(self._node(host, int(port)))
                    if kind == "ASK":
                        connection.ask("ASKING")
                elif kind in ("TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK") and time.monotonic() < give_up:
                    time.sleep(_POLL_S)
                    connection, hops = self._connection, 0
                else:
                    raise


def first_that_answers(seeds: Sequence[resp.Address]) -> resp.Address:
    """Raises what the last one said if none does."""
    for seed in seeds[:-1]:
        try:
            resp.Connection(seed).close()
        except (OSError, resp.RespError):
            continue
        return seed
    return seeds[-1]


def _scanned(connection: resp.Connection, pattern: str) -> Iterator[list[str]]:
    """By SCAN: unlike KEYS, it never blocks the server for long."""
    cursor = "0"
    while True:
        reply = connection.ask("SCAN", cursor, "MATCH", pattern, "COUNT", str(_BATCH))
        match reply:
            case [str() as cursor, list() as keys]:
                yield [str(key) for key in keys]
            case _:
                raise EngineError(f"SCAN was answered with {reply!r}, not with a cursor and keys")
        if cursor == "0":
            return
