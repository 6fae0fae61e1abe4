"""Remove every container, volume and network of one run: `python -m recollect.verify.providers.docker_sweep
RUN`.

The warden runs it when the runner has ended, and the next run's sweep when the warden could not. Containers
carry the run's id as a label; those of a compose project carry it in the project's name.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from recollect.verify.host import folder
from recollect.verify.host.errors import NotInstalled
from recollect.verify.providers.docker import client

RUN_LABEL = "recollect.run"
_PROJECT_LABEL = "com.docker.compose.project"


def project_name(run_id: str, number: int) -> str:
    """A compose project of a run; lower case is all that compose takes."""
    return f"recollect-{run_id.lower()}-{number}"


def register() -> None:
    """From now on, what this run leaves in the daemon is removed at its end. To be called before anything is made."""
    kept = {key: value for key, value in os.environ.items() if key.startswith(("DOCKER_", "PATH", "HOME"))}
    env = {**kept, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    folder.at_end([sys.executable, "-m", __spec__.name, folder.run_id()], env)


def sweep(run_id: str) -> None:
    with contextlib.closing(client()) as connected:
        for container in _of_run(connected.containers, run_id, all=True):
            _quietly(container.remove, force=True, v=True)
        for volume in _of_run(connected.volumes, run_id):
            _quietly(volume.remove, force=True)
        for network in _of_run(connected.networks, run_id):
            _quietly(network.remove)


def _of_run(collection: Any, run_id: str, **options: Any) -> Iterator[Any]:
    yield from collection.list(filters={"label": f"{RUN_LABEL}={run_id}"}, **options)
    prefix = project_name(run_id, 0)[:-1]
    for item in collection.list(filters={"label": _PROJECT_LABEL}, **options):
        labels = item.attrs.get("Labels") or item.attrs.get("Config", {}).get("Labels") or {}
        if labels.get(_PROJECT_LABEL, "").startswith(prefix):
            yield item


def _quietly(remove: Any, **options: Any) -> None:
    """Another sweep may have been faster; what remains is for the next."""
    import docker

    with contextlib.suppress(docker.errors.APIError):
        remove(**options)


def main() -> None:
    warnings.simplefilter("ignore")
    with contextlib.suppress(NotInstalled):
        sweep(sys.argv[1])


if __name__ == "__main__":
    main()
