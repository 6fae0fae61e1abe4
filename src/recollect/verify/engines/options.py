"""Everything that can be specified when an engine is made; all of it is optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class EngineOptions:
    policy: str | None = None
    """None means the engine's default policy."""
    config: Path | None = None
    """The user's own configuration file: the policy is then `custom`."""
    root: Path | None = None
    """Where the engine's folder is made; None means the run folder."""
    data: Path | None = None
    """An existing folder to use as its data, such as a crash image; None means a new, empty one."""
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the server's environment at every start (a preloaded shim, a time zone)."""
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 30.0
