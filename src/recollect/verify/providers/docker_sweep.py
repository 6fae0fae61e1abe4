"""Remove every container, volume and network of one run: `python -m recollect.verify.providers.docker_sweep
RUN`.

The warden runs it when the runner has ended; if it could not, the next run's sweep does. Everything that a run creates
in the daemon, directly or through a compose file, carries two labels: the run's name, and the proof that the name is a
digest of. What carries only the name does not belong to the run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recollect.verify.host import folder
from recollect.verify.host.errors import NotInstalled
from recollect.verify.host.marker import Marker
from recollect.verify.providers.docker import client

if TYPE_CHECKING:
    from docker import DockerClient

RUN_LABEL = "recollect.run"
PROOF_LABEL = "recollect.proof"
_PASSES_MAX = 20
_PASS_S = 0.25


def labels() -> dict[str, str]:
    """The labels of everything that this run creates in the daemon."""
    marker = folder.run_marker()
    return {RUN_LABEL: marker.name, PROOF_LABEL: marker.proof}


def name_of(number: int) -> str:
    """The name of a compose project or a volume of this run."""
    return f"recollect-{folder.run_marker().name}-{number}"


def register() -> None:
    """Makes sure that what this run leaves in the daemon is removed at its end. Call it before creating anything."""
    kept = {key: value for key, value in os.environ.items() if key.startswith(("DOCKER_", "PATH", "HOME"))}
    env = {**kept, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    folder.at_end([sys.executable, "-m", __spec__.name, folder.run_marker().name], env)


def sweep(run: str) -> None:
    """Until nothing is left: what a killed compose had asked for, the daemon may still be creating."""
    with contextlib.closing(client()) as connected:
        for _ in range(_PASSES_MAX):
            if not _removed(connected, run):
                return
            time.sleep(_PASS_S)


def _removed(connected: DockerClient, run: str) -> int:
    """How many things of the run there were."""
    count = 0
    for collection, listing, options in (
        (connected.containers, {"all": True, "ignore_removed": True}, {"force": True, "v": True}),
        (connected.volumes, {}, {"force": True}),
        (connected.networks, {}, {}),
    ):
        for item in _of_run(collection, run, **listing):
            _quietly(item.remove, **options)
            count += 1
    return count


def _of_run(collection: Any, run: str, **options: Any) -> Iterator[Any]:
    for item in collection.list(filters={"label": f"{RUN_LABEL}={run}"}, **options):
        told = item.attrs.get("Labels") or item.attrs.get("Config", {}).get("Labels") or {}
        if Marker(told.get(PROOF_LABEL, "")).proves(run):
            yield item


def _quietly(remove: Any, **options: Any) -> None:
    """Another sweep may have been faster; what remains is tried again."""
    import docker

    with contextlib.suppress(docker.errors.APIError):
        remove(**options)


def main() -> None:
    warnings.simplefilter("ignore")
    with contextlib.suppress(NotInstalled):
        sweep(sys.argv[1])


if __name__ == "__main__":
    main()
