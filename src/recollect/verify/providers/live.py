"""What is done the same way to every container that docker-py holds, whoever made it."""

from __future__ import annotations

from typing import Any


class LiveContainer:
    """A container that exists. Where it is reached, and what wiping and removing it means, its kinds say."""

    _container: Any

    def container(self) -> Any:
        return self._container

    def _attributes(self) -> dict[str, Any]:
        self._container.reload()
        attributes: dict[str, Any] = self._container.attrs
        return attributes

    def start(self) -> None:
        self._container.start()

    def running(self) -> bool:
        return bool(self._attributes()["State"]["Running"])

    def exit_status(self) -> int:
        return int(self._attributes()["State"]["ExitCode"])

    def stop(self, timeout_s: float) -> None:
        if self.running():
            self._container.stop(timeout=int(timeout_s))

    def kill(self) -> None:
        if self.running():
            self._container.kill(signal="SIGKILL")
            self._container.wait()

    def pause(self) -> None:
        self._container.pause()

    def resume(self) -> None:
        self._container.unpause()

    def logs(self, lines_max: int) -> str:
        text: str = self._container.logs(tail=lines_max).decode(errors="replace")
        return text

    def mounts(self) -> list[dict[str, Any]]:
        return list(self._attributes()["Mounts"])
