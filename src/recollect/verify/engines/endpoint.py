"""Where a started engine answers: everything that a target's factory learns about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from recollect.secret import MARK, Scrubber, shown


@dataclass(frozen=True)
class Endpoint:
    """One started engine.

    `url` is what a driver takes. Servers answer on `host`:`port` and, when they run on this machine, on the
    unix socket `socket` too (`socket_url` is the same database through it). Embedded engines have a `path`
    and no port.
    """

    url: str
    engine: str
    product: str
    version: str
    policy: str
    provider: str
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = None
    """`url` has both too."""
    path: Path | None = None
    socket: Path | None = None
    socket_url: str | None = None
    replicas: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """For an engine of several servers: the address of each node of a cluster, or of each sentinel, for a single
    connection. `url` has them all."""
    service: str | None = None
    """The name by which sentinels know the primary."""
    services: Mapping[str, str] = field(default_factory=dict)
    """The other services that were named of a compose file: the address of each."""
    namespace: str | None = None
    """What is ours on an engine that others use too: a word that is part of every session id (Redis), or the database
    or schema that `url` points at (PostgreSQL)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What a connection to an embedded engine has to set for the policy to hold (SQLite's PRAGMAs)."""
    timeout_s: float | None = None
    """How long a store should wait for an answer, if the run needs it to give up soon."""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return shown(self.url)

    @property
    def scrubber(self) -> Scrubber:
        """Removes the credentials of all its addresses from other people's text."""
        return Scrubber((self.url, self.socket_url, *self.replicas, *self.nodes, *self.services.values()))

    def __repr__(self) -> str:
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        told["password"] = MARK if self.password else None
        values = ", ".join(f"{name}={value!r}" for name, value in told.items())
        return self.scrubber(f"Endpoint({values})")
