"""What the runner and the faults may ask of an engine.

Every engine that a run starts implements all of `Engine`. Abilities that only some have are capability
protocols: a fault checks `isinstance(engine, Pausable)` and is `skipped` with a reason if the answer is no.
An engine that somebody else runs (the url provider) is `Attached`: its type has no `kill`, so it cannot be
killed by mistake.

Everything is synchronous: the runner calls it from one thread, and the work is waiting for other processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from recollect.verify.engines.endpoint import Endpoint


@dataclass(frozen=True)
class Policy:
    """A named durability configuration: what to set, and what the engine must then say when asked."""

    name: str
    settings: Mapping[str, str]
    """What the engine is started with."""
    read_back: Mapping[str, str]
    """What `Engine.settings()` must contain afterwards."""
    config: Path | None = field(default=None)
    """The user's own configuration file; only the policy `custom` has one."""


@runtime_checkable
class Attached(Protocol):
    """What any engine can do: be used between `start` and `stop`."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def policy(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    def start(self) -> Endpoint: ...

    def stop(self) -> None: ...

    def settings(self) -> Mapping[str, str]: ...

    def logs(self, lines_max: int = 40) -> str: ...


@runtime_checkable
class Engine(Protocol):
    """An engine that this run started and may break."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def embedded(self) -> bool:
        """True if it lives inside the process that uses it: killing the engine means killing that process."""

    @property
    def policy(self) -> str: ...

    @property
    def product(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def data(self) -> Path | None: ...

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        """Start and wait until it answers; `env` is added to the server's environment for this start only."""

    def stop(self) -> None:
        """Ask it to shut down, as an operator would, and wait: engines save on the way out."""

    def kill(self) -> None:
        """SIGKILL all its processes at once, and return when they are gone and reaped. Not a power loss."""

    def restart(self, env: Mapping[str, str] | None = None) -> Endpoint:
        """Start again on the same data; stops it first if it is running."""

    def wipe(self) -> None:
        """Delete its data, as a lost volume does. The engine must be down."""

    def alive(self) -> bool: ...

    def settings(self) -> Mapping[str, str]:
        """The durability settings as the running engine itself reports them."""

    def logs(self, lines_max: int = 40) -> str: ...

    def close(self) -> None:
        """Kill it and remove everything it left."""


@runtime_checkable
class Pausable(Protocol):
    """Can be frozen and thawed: while frozen it keeps its connections and answers nothing."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@runtime_checkable
class Counting(Protocol):
    """Can be asked how much was written to it."""

    def written(self) -> int:
        """A number that grows with every write, committed or not."""


@runtime_checkable
class Replica(Protocol):
    """A streaming copy of a primary, itself an engine."""

    @property
    def endpoint(self) -> Endpoint: ...

    def pause_replay(self) -> None:
        """Once this returns, nothing more that the primary writes becomes visible here; reads still answer.

        Nothing more arrives either: a promotion now has exactly what is visible now.
        """

    def resume_replay(self) -> None: ...

    def wait_caught_up(self, timeout_s: float = 10.0) -> None:
        """Return when everything that the primary has acknowledged by now is visible here."""

    def promote(self) -> Endpoint:
        """Make it a primary, with what it has replayed."""

    def kill(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Replicated(Protocol):
    """Can have a streaming replica."""

    def replica(self) -> Replica: ...


@runtime_checkable
class Upgradable(Protocol):
    """Can run the same data under another version. A running engine is stopped cleanly first."""

    def upgrade(self, version: str) -> Endpoint:
        """The way the engine's own documentation describes."""

    def downgrade(self, version: str) -> Endpoint:
        """Simply tries: whatever happens (an empty start, a refusal as `StartFailed`) is the finding."""

    def swap(self, version: str) -> Endpoint:
        """Simply tries, in either direction: the same folder under the other version, with nothing converted.

        If it refuses, the former version is restored.
        """


@runtime_checkable
class Reconfigurable(Protocol):
    """Can take another policy on the same data. A running engine is stopped cleanly first."""

    def reconfigure(self, policy: str) -> Endpoint: ...
