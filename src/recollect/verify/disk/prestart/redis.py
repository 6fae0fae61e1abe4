"""A Redis that starts on one crash state after another, as copies of a template that has not read any data yet.

Everything that depends on the data happens in the copy, in the server's own start-up code: loading, refusing, cutting a
torn tail, opening files. The template's sockets stay open, so a client waits in their queue instead of polling. A copy
that refuses its data is noticed because it exits.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from recollect.verify.disk.prestart import Copy, Template, unavailable
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.host import processes
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import OwnedProcess
from recollect.verify.providers.build import Build

_POLL_S = 0.001
_UP = (b"+PONG", b"-NOAUTH", b"-NOPERM")


def can_be_prestarted(build: Build) -> bool:
    """Redis before 7 opens its append-only file before it makes its first thread: too early for a template."""
    major = int(build.version.partition(".")[0])
    return major >= 7 and unavailable() is None and cannot_see(Path(build.location)) is None


class PrestartedRedis(RedisEngine):
    """Looks like any Redis from outside; the first start makes the template."""

    def __init__(self, build: Build, options: EngineOptions) -> None:
        super().__init__(build, options)
        self._template: Template | None = None
        self._template_process: OwnedProcess | None = None
        self._copy: Copy | None = None
        self._env: dict[str, str] = {}

    def start(self, env: Mapping[str, str] | None = None) -> Endpoint:
        """Copies share the environment of the template, which is that of the first start."""
        self.kill()
        if self._template is None:
            self._env = dict(env or {})
            self._template = self._launched()
        elif self._env != dict(env or {}):
            raise EngineError("a prestarted server already has its environment; use RedisEngine to set one")
        self._log_start = self.log.stat().st_size
        self._copy = self._template.copy()
        try:
            self._wait_for(self._copy)
            self._endpoint = self._endpoint or self._endpoint_now()
        except BaseException:
            self.kill()
            raise
        return self._endpoint

    def _launched(self) -> Template:
        self._prepare()
        template = Template(self.folder / "prestart.sock")
        ours = template.env()
        preloaded = f"{ours['LD_PRELOAD']} {self._env.get('LD_PRELOAD', '')}".strip()
        self._template_process = processes.start(self._launch({**self._env, **ours, "LD_PRELOAD": preloaded}))
        give_up = time.monotonic() + self.options.start_timeout_s
        while not template.connected(_POLL_S):
            if not self._template_process.alive() or time.monotonic() > give_up:
                template.close()
                raise self._start_failed("did not get as far as reading its data")
        return template

    def _wait_for(self, copy: Copy) -> None:
        give_up = time.monotonic() + self.options.start_timeout_s
        while not self._answers(copy, give_up):
            if (status := copy.exit_status()) is not None:
                raise self._start_failed(f"ended with status {status} before it was ready")
            if time.monotonic() > give_up:
                raise self._start_failed(f"was not ready within {self.options.start_timeout_s:g} s")
            time.sleep(_POLL_S)

    def _answers(self, copy: Copy, give_up: float) -> bool:
        """Whether it serves. Waits for its answer or its end, whichever comes first."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.connect(str(self.socket))
            try:
                asking.sendall(b"PING\r\n")
                waiting = [asking.fileno(), copy.fileno()]
                ready = select.select(waiting, [], [], max(0.0, give_up - time.monotonic()))[0]
                return asking.fileno() in ready and asking.recv(64).startswith(_UP)
            except ConnectionError:  # it took the connection and then refused its data
                return False

    def alive(self) -> bool:
        return self._copy is not None and self._copy.exit_status() is None

    def kill(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.kill()

    def close(self) -> None:
        self.kill()
        if self._template is not None and self._template_process is not None:
            self._template.close()
            self._template_process.kill()
        super().close()
