"""A group of servers between which proxies can stand, so that links can be cut, healed and lost: see `mesh`."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import TypeVar

from recollect.verify.engines.group import ServerGroup
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.mesh import Mesh
from recollect.verify.host.waiting import wait_until

CHANGE_TIMEOUT_S = 30.0

Server = TypeVar("Server", bound=LocalServer)


class MeshedGroup(ServerGroup[Server]):
    _mesh: Mesh | None = None

    @abstractmethod
    def put_proxies_between(self) -> None:
        """Call it before the first start, and `isolate` works."""

    @abstractmethod
    def has_successor(self, old: Server) -> bool:
        """Whether another server has taken over from this one, in the eyes of all that answer."""

    def await_successor(self, old: Server) -> None:
        wait_until(
            lambda: self.has_successor(old), CHANGE_TIMEOUT_S, f"no replica of {old.folder.name} took over"
        )

    def hold_back(self, primary: Server, *replicas: Server) -> None:
        """Nothing that the primary sends reaches these replicas, for now."""
        self._proxies.cut(self._name_of(primary), [self._name_of(replica) for replica in replicas])

    def lose(self, server: Server) -> None:
        """What it had sent and had not arrived is gone, as with its host; then everybody is reached again."""
        self._proxies.lose(self._name_of(server))
        self._proxies.heal()

    def lose_replies(self, one_in: int, rng: random.Random) -> None:
        """Clients lose one reply in so many, and the connection with it; 0: none any more."""
        self._proxies.lose_replies(one_in, rng)

    def heal(self) -> None:
        self._proxies.heal()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._mesh is not None:
                self._mesh.close()

    def _name_of(self, server: Server) -> str:
        """Its name in the mesh."""
        return server.folder.name

    @property
    def _proxies(self) -> Mesh:
        assert self._mesh is not None, "put_proxies_between() comes first"
        return self._mesh
