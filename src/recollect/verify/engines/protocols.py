"""What the runner and the faults may ask of an engine.

Every engine that a run starts has the whole of `Engine`. Abilities that only some have are capability
protocols: a fault asks `isinstance(engine, Pausable)` and is `skipped` with a reason where the answer is no.
An engine that somebody else runs (the url provider) is `Attached`: its type has no `kill`, so it cannot be
killed by mistake.

All of it is synchronous: the runner calls it from one thread, and the work is waiting for other processes.
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
    """An engine as far as anyone may use it: on for `start`, off for `stop`."""

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
    """An engine that this run started, and may break."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def embedded(self) -> bool:
        """True when it lives inside the process that uses it: killing the engine is killing that process."""

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
        """SIGKILL every process of it at once, and return when all are gone and reaped. Not a power loss."""

    def restart(self, env: Mapping[str, str] | None = None) -> Endpoint:
        """Start again on the same data; stops first when it is running."""

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
    """Can be frozen and thawed: it holds its connections and answers nothing."""

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
        """From the return on, nothing that the primary writes becomes visible here; reads still answer.

        Nor does it arrive: a promotion now has exactly what is visible now.
        """

    def resume_replay(self) -> None: ...

    def wait_caught_up(self, timeout_s: float = 10.0) -> None:
        """Return when all that the primary has acknowledged by now is visible here."""

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
    """Can run the same data under another version. A running engine is stopped first, in good order."""

    def upgrade(self, version: str) -> Endpoint:
        """The way that the engine's own documentation gives."""

    def downgrade(self, version: str) -> Endpoint:
        """The plain attempt: what comes of it (an empty start, a refusal as `StartFailed`) is the finding."""

    def swap(self, version: str) -> Endpoint:
        """The plain attempt in either direction: the same folder under the other version, nothing converted.

        After a refusal the former version is in place again.
        """


@runtime_checkable
class Reconfigurable(Protocol):
    """Can take another policy on the same data. A running engine is stopped first, in good order."""

    def reconfigure(self, policy: str) -> Endpoint: ...
