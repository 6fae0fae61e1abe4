"""A Docker daemon for the tests and the benchmark: the user's, or one of our own where that can be.

Our own needs root and Debian's `docker.io`. It has its own data, sockets and pid file, leaves the firewall alone,
and is stopped at the end with everything it made. It also has its own bridge and addresses: two daemons on docker0
give two containers the same address, and one test run talks to the other's engines.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from recollect.verify.host import folder, processes
from recollect.verify.host.errors import EngineError, NotInstalled
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import docker

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_ATTEMPTS_MAX = 20


class Unavailable(Exception):
    """Why there is no daemon here."""


@contextlib.contextmanager
def available() -> Iterator[str]:
    """The DOCKER_HOST of a daemon that answers; it is in the environment meanwhile."""
    with contextlib.suppress(NotInstalled):
        docker.client().close()
        yield os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return
    where = _path()
    daemon, ip = shutil.which("dockerd", path=where), shutil.which("ip", path=where)
    if daemon is None or ip is None:
        raise Unavailable("no Docker daemon runs and none can be started: apt-get install docker.io iproute2")
    if os.geteuid() != 0:
        raise Unavailable("no Docker daemon runs, and starting one of our own needs root")
    with _own_daemon(daemon, ip) as address:
        yield address


def _path() -> str:
    """With the folders of a system's daemons, which not everybody's PATH has: dockerd looks for its proxy there."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin"


@contextlib.contextmanager
def _own_daemon(daemon: str, ip: str) -> Iterator[str]:
    home = folder.subfolder("docker")
    address = f"unix://{home}/docker.sock"
    before = os.environ.get("DOCKER_HOST")
    with _own_bridge(ip) as (bridge, pool):
        argv = [daemon, "--iptables=false", "--ip6tables=false", "--ip-forward=false", "-H", address]
        argv += ["--bridge", bridge, "--default-address-pool", f"base={pool},size=24"]
        for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
            argv += [f"--{option}", str(home / name)]
        # Started by the warden: a test run that is killed leaves no daemon.
        process = processes.start(processes.Launch(argv, home / "log", {**os.environ, "PATH": _path()}))
        os.environ["DOCKER_HOST"] = address
        try:
            _wait(process, home)
            yield address
        finally:
            process.signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)
            process.kill()
            if before is None:
                del os.environ["DOCKER_HOST"]
            else:
                os.environ["DOCKER_HOST"] = before
    folder.discard(home)


@contextlib.contextmanager
def _own_bridge(ip: str) -> Iterator[tuple[str, str]]:
    """A bridge with a network of its own, and a pool of addresses beside it for compose's networks."""

    def run(*words: str) -> bool:
        return subprocess.run([ip, *words], capture_output=True, check=False).returncode == 0

    for _ in range(_ATTEMPTS_MAX):
        number = random.SystemRandom().randrange(64, 250)
        name = f"recollect{number}"
        if run("link", "add", name, "type", "bridge"):
            break
    else:
        raise Unavailable("no network bridge can be made here")
    try:
        if not (run("addr", "add", f"10.{number}.0.1/24", "dev", name) and run("link", "set", name, "up")):
            raise Unavailable("no network bridge can be set up here")
        yield name, f"10.{number}.128.0/17"
    finally:
        run("link", "del", name)


def _wait(process: processes.OwnedProcess, home: Path) -> None:
    def ready() -> bool:
        if not process.alive():
            last = (home / "log").read_text(errors="replace").splitlines()[-1:]
            raise Unavailable(f"dockerd does not start here: {' '.join(last)}")
        try:
            docker.client().close()
        except NotInstalled:
            return False
        return True

    try:
        wait_until(ready, START_TIMEOUT_S, "dockerd did not answer")
    except EngineError as error:
        raise Unavailable(str(error)) from error
