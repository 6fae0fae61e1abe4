"""What a container or a compose service needs to know about an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recollect.verify.engines.protocols import Policy


@dataclass(frozen=True)
class Login:
    """Where it answers and as whom."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None


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
