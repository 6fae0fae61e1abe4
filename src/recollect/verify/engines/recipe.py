"""What a container or a compose service needs to know about an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Policy, Replica

RunIn = Callable[[Sequence[str]], None]
"""Runs a command inside a container."""


@dataclass(frozen=True)
class Login:
    """Where it answers and as whom."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None


class ReplicaServer(Protocol):
    """The server of a replica, a process or a container."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def options(self) -> EngineOptions: ...

    def logs(self, lines_max: int = 40) -> str: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Following:
    """A replica that is up, and the primary that it is to follow."""

    server: ReplicaServer
    replica: Login
    primary: Login
    place: Callable[[], Login]
    """Where the replica reaches its primary, in their network."""


@dataclass(frozen=True)
class Recipe:
    engine: str
    port: int
    data: str
    """The folder in the image where its data belongs."""
    policies: Mapping[str, Policy]
    default_policy: str
    command: Callable[[str, Policy], list[str]]
    """Product and policy → the container's command."""
    files: Callable[[Policy, str], Mapping[str, str]]
    """Policy and password of our own container → the files that the command names."""
    env: Callable[[str], Mapping[str, str]]
    """The password → the environment of our own container."""
    own: Callable[[Policy, str, Login], Login]
    """Policy, password and address → the login of our own container."""
    is_ready: Callable[[Login], bool]
    identify: Callable[[Login], tuple[str, str]]
    """Product and version; an empty version if only its image tells."""
    settings: Callable[[Login], dict[str, str]]
    folder: Callable[[Login], str]
    """Where the running server keeps its data, inside its container."""
    written: Callable[[Login], int] | None
    """A number that grows with every write; None if it cannot be asked."""
    change: Callable[[Policy], list[str]]
    """A policy → the words that set it at the end of any command of this server, whatever came before."""
    url: Callable[[Login], str]
    credentials: Callable[[Mapping[str, str], list[str], Login], Login]
    """A compose service's environment and command → the login that they set."""
    begin_replica: Callable[[Login, Login, RunIn], tuple[str, ...]] | None = None
    """The primary as we reach it, as its replica does, and a way to run something inside → a command that the replica's
    container runs with its own command as further words; None if the engine has no replicas."""
    follow: Callable[[Following], Replica] | None = None
    rows_beside: bool = False
    """Whether a store keeps files of its own beside the engine's, which then share its fate."""
