"""Everything that may be said about an engine when it is made; all of it optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class EngineOptions:
    policy: str | None = None
    """None is the engine's default policy."""
    config: Path | None = None
    """The user's own configuration file: the policy is then `custom`."""
    root: Path | None = None
    """Where the engine's folder is made; the run folder when None."""
    data: Path | None = None
    """An existing folder to use as its data, such as a crash image; a new empty one when None."""
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the server's environment at every start (a preloaded shim, a time zone)."""
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 30.0
