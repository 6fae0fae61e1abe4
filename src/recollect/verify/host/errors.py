"""What can go wrong with an engine, before any store is involved.

    EngineError
    ├── UnknownName     no engine, version, policy or provider is called that (the nearest name is suggested)
    ├── NotInstalled    known, but not on this machine (with the command that gets it)
    ├── StartFailed     the engine did not come up (with its own last log lines); a fault may want to see this one
    └── NotOurs         asked to break or flush an engine that this run did not start

Every message is one sentence with the value and the expectation, then the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EngineError(Exception):
    """The root of this tree."""


class UnknownName(EngineError):
    """A name that is not in its list."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, note: str = "") -> None:
        names = list(known)
        begun = [known_name for known_name in names if name and known_name.startswith(name)]
        near = begun or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}."
        super().__init__(f"unknown {what} {name!r}: {hint}{' ' + note if note else ''}")
        self.name = name
        self.nearest = near[0] if near else None


class NotInstalled(EngineError):
    """The engine is known but not on this machine."""


class StartFailed(EngineError):
    """The engine did not become ready; `log` holds its own last lines."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{_indented(log)}" if log else message)
        self.reason = message
        self.log = log

    @property
    def in_one_line(self) -> str:
        """For a table: the engine's own last line says the most."""
        last = self.log.strip().splitlines()[-1:]
        return " ".join([self.reason, *last])


class NotOurs(EngineError):
    """A destructive request for an engine that somebody else runs."""


def _indented(log: str) -> str:
    return "\n".join(f"    {line}" for line in log.splitlines())
