"""A worker under another interpreter, the one with the last release installed, at the other end of the same pipe.

The fork server cannot start it: its children are copies of ourselves. So it is started as a program that inherits its
end of the pipe as a descriptor, isolated from our folders and environment: it imports what is installed there. Only
parts of the kit that are missing there come from our folders. The target never does: it would be this release again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

import recollect
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target import pipe, worker
from recollect.verify.target.interface_choice import Form
from recollect.verify.target.login import environment_for
from recollect.verify.target.registry import BUILT_IN, address_of

# Its own packages come first. Messages of a failed import go to the target's log.
_BEGIN = (
    "import sys; lacking = [folder for folder in sys.argv[2:] if folder not in sys.path]; sys.path += lacking; "
    "from recollect.verify import other_python; other_python.main(int(sys.argv[1]), lacking)"
)


class _Start(msgspec.Struct):
    """The first message it gets."""

    spec: str
    endpoint: dict[str, Any]
    log: str
    control: str | None
    recorded: dict[str, str] | None
    form: Form = ""


class Program:
    """A started program with the few methods of a `multiprocessing` process that a client needs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid: int | None = process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout_s: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)


def start(
    python: str,
    ours: Connection,
    theirs: Connection,
    *,
    spec: str,
    endpoint: Endpoint,
    log: Path,
    control: str | None,
    recorded: Mapping[str, str] | None,
    form: Form = "",
) -> Program:
    """Starts the worker; `theirs` is closed here. An interpreter that cannot be run raises `OSError`."""
    log = log.absolute()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [python, "-I", "-c", _BEGIN, str(theirs.fileno()), *_own_folders()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            cwd=log.parent,  # not the project's folder, which has this release in it
            env={**os.environ, **environment_for(endpoint)},
        )
    theirs.close()
    told = msgspec.json.encode(asdict(endpoint), enc_hook=str)
    start = _Start(
        spec,
        msgspec.json.decode(told),
        str(log),
        control,
        None if recorded is None else dict(recorded),
        form,
    )
    with contextlib.suppress(OSError):  # already gone: the missing first reply will show it
        ours.send_bytes(msgspec.json.encode(start))
    return Program(process)


def main(descriptor: int, lacking: list[str]) -> None:
    """Entry point of the program, under the other interpreter."""
    connection = Connection(descriptor)
    start = msgspec.json.decode(connection.recv_bytes(), type=_Start)
    module = (BUILT_IN.get(start.spec) or address_of(start.spec)).partition(":")[0]
    if _is_ours(module, lacking):
        name = module.partition(".")[0]
        reason = f"target {start.spec!r}: {sys.executable} has no {name!r}; install the last release there"
        connection.send_bytes(pipe.encode(pipe.Broken(reason)))
        return
    worker.main(
        connection,
        start.spec,
        _endpoint(start.endpoint),
        start.log,
        False,
        start.control,
        start.recorded,
        form=start.form,
    )


def _endpoint(told: dict[str, Any]) -> Endpoint:
    """The endpoint as this interpreter's release defines it: it may have other fields."""
    values = {field.name: told[field.name] for field in fields(Endpoint) if field.name in told}
    for name in ("path", "socket"):
        if values.get(name) is not None:
            values[name] = Path(values[name])
    for name in ("replicas", "nodes"):
        values[name] = tuple(values.get(name, ()))
    return Endpoint(**values)


def _is_ours(module: str, lacking: list[str]) -> bool:
    """Whether the target would come from this release's folders. The worker reports anything else that is wrong."""
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    origin = None if found is None else found.origin
    return origin is not None and any(Path(origin).is_relative_to(folder) for folder in lacking)


def _own_folders() -> list[str]:
    """Where this release of the kit and what it imports are."""
    package = Path(recollect.__file__).resolve().parent.parent
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return list(dict.fromkeys(os.path.realpath(folder) for folder in (package, *installed)))
