"""A Docker daemon for the tests and the benchmark: the user's, or one of our own where that can be.

Our own needs root and Debian's `docker.io`. It has its own data, sockets and pid file, leaves the firewall
alone, and is stopped at the end with everything it made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recollect.verify.host.errors import EngineError, NotInstalled
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import docker

START_TIMEOUT_S = 30.0


class Unavailable(Exception):
    """Why there is no daemon here."""


@contextlib.contextmanager
def available() -> Iterator[str]:
    """The DOCKER_HOST of a daemon that answers; it is in the environment meanwhile."""
    with contextlib.suppress(NotInstalled):
        docker.client().close()
        yield os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return
    daemon = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if daemon is None:
        raise Unavailable("no Docker daemon runs and there is no dockerd to start: apt-get install docker.io")
    if os.geteuid() != 0:
        raise Unavailable("no Docker daemon runs, and starting one of our own needs root")
    home = Path(tempfile.mkdtemp(prefix="recollect-docker-"))
    address = f"unix://{home}/docker.sock"
    before = os.environ.get("DOCKER_HOST")
    try:
        process = _start(daemon, home, address)
        os.environ["DOCKER_HOST"] = address
        try:
            _wait(process, home)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            if before is None:
                del os.environ["DOCKER_HOST"]
            else:
                os.environ["DOCKER_HOST"] = before
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _start(daemon: str, home: Path, address: str) -> subprocess.Popen[bytes]:
    argv = [daemon, "--iptables=false", "--ip6tables=false", "--ip-forward=false", "-H", address]
    for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
        argv += [f"--{option}", str(home / name)]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _wait(process: subprocess.Popen[bytes], home: Path) -> None:
    def ready() -> bool:
        if process.poll() is not None:
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
