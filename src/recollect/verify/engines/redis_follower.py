"""A Redis that follows another one, wherever the two run.

To make it lag, it is pointed at a port that nobody listens on: the link is down when the command returns, nothing more
is applied, reads continue with what it has, and the way back is a partial resync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.recipe import ReplicaServer
from recollect.verify.host.waiting import wait_until
from recollect.verify.wire.resp import Reply, fields_of

Place = tuple[str, int]


class Asked(Protocol):
    def ask(self, *words: str) -> Reply: ...


class RedisFollower:
    def __init__(
        self,
        server: ReplicaServer,
        consoles: tuple[Asked, Asked],
        place: Callable[[], Place],
        nowhere: Place,
        timeout_s: float,
    ) -> None:
        """`consoles` are the replica's and the primary's; `place` is where the replica reaches the primary."""
        self._server = server
        self._own, self._primary = consoles
        self._place, self._nowhere = place, nowhere
        self._timeout_s = timeout_s

    @property
    def endpoint(self) -> Endpoint:
        return self._server.endpoint

    def pause_replay(self) -> None:
        self._follow(self._nowhere)

    def resume_replay(self) -> None:
        self._follow(self._place())
        self.wait_for_link()

    def _follow(self, place: Place) -> None:
        host, port = place
        self._own.ask("REPLICAOF", host, str(port))

    def wait_caught_up(self, timeout_s: float = 10.0) -> None:
        target = int(fields_of(self._primary.ask("INFO", "replication"))["master_repl_offset"])
        wait_until(
            lambda: int(self._state().get("slave_repl_offset", -1)) >= target,
            timeout_s,
            f"the replica did not reach offset {target} of its primary",
        )

    def promote(self) -> Endpoint:
        self._own.ask("REPLICAOF", "NO", "ONE")
        return self.endpoint

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._server.close()

    def wait_for_link(self) -> None:
        wait_until(
            lambda: self._state().get("master_link_status") == "up",
            self._timeout_s,
            "the replica did not reach its primary",
        )

    def _state(self) -> dict[str, str]:
        return fields_of(self._own.ask("INFO", "replication"))
