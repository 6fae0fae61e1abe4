"""Stores that keep each session in a file of lines, with one fault each; the first has none.

They run on the engine `sqlite`, whose data folder they use, because an embedded engine lives in the store's process.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, ClassVar

from recollect.verify.engines.endpoint import Endpoint


class LineFiles:
    """One line for each message, synced before it is acknowledged, the file's name included."""

    traits: tuple[str, ...] = ("single_writer",)
    syncs_first = True
    syncs_folder = True

    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.path is not None
        self.folder = endpoint.path.parent

    def path(self, session: str) -> Path:
        return self.folder / f"{session}.lines"

    def append_message(self, session: str, message: Any) -> None:
        path = self.path(session)
        new = not path.exists()
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            self.write(fd, json.dumps(message).encode() + b"\n")
            if self.syncs_first:
                os.fsync(fd)
        finally:
            os.close(fd)
        if new and self.syncs_folder:
            folder = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def write(self, fd: int, data: bytes) -> None:
        os.write(fd, data)

    def get_messages(self, session: str) -> list[Any]:
        path = self.path(session)
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]


class Hasty(LineFiles):
    syncs_first = False


class Forgetful(LineFiles):
    syncs_folder = False


class Hidden(LineFiles):
    """Enters the kernel by itself: the disk recorder cannot see that."""

    def write(self, fd: int, data: bytes) -> None:
        number = {"x86_64": 1, "aarch64": 64}[platform.machine()]
        ctypes.CDLL(None).syscall(number, fd, data, len(data))


class Moody(LineFiles):
    """Reads as empty in one process and not in another, as it looks when something in the judge is wrong."""

    def get_messages(self, session: str) -> list[Any]:
        return [] if "recollect.commands.explore" in sys.modules else super().get_messages(session)


class Keeping(LineFiles):
    """Remembers the first files that its process read, as a cache or a connection that nobody closes would."""

    read: ClassVar[dict[str, list[Any]]] = {}

    def get_messages(self, session: str) -> list[Any]:
        return self.read.setdefault(session, super().get_messages(session))


class Windowed(LineFiles):
    """Shows the last two messages, and says so."""

    traits = ("single_writer", "keeps_last=2")
    shown = 2

    def get_messages(self, session: str) -> list[Any]:
        return super().get_messages(session)[-self.shown :]


class WindowedByOne(Windowed):
    shown = 1


class WholeFiles:
    """Saves a session as a whole: in a new file, which then takes the old one's name."""

    traits = ("single_writer",)

    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.path is not None
        self.folder = endpoint.path.parent

    def load(self, session: str) -> list[Any]:
        path = self.folder / f"{session}.list"
        return json.loads(path.read_text() or "[]") if path.exists() else []

    def save(self, session: str, messages: list[Any]) -> None:
        path = self.folder / f"{session}.list"
        self.synced(path.with_suffix(".new"), json.dumps(messages))
        path.with_suffix(".new").rename(path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def synced(self, path: Path, text: str) -> None:
        with path.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


class WrittenOver(WholeFiles):
    """Empties the file before it writes it again."""

    def save(self, session: str, messages: list[Any]) -> None:
        self.synced(self.folder / f"{session}.list", json.dumps(messages))


def whole_files(endpoint: Endpoint) -> WholeFiles:
    return WholeFiles(endpoint)


def written_over(endpoint: Endpoint) -> WholeFiles:
    return WrittenOver(endpoint)


def windowed(endpoint: Endpoint) -> LineFiles:
    return Windowed(endpoint)


def windowed_by_one(endpoint: Endpoint) -> LineFiles:
    return WindowedByOne(endpoint)


def honest(endpoint: Endpoint) -> LineFiles:
    return LineFiles(endpoint)


def moody(endpoint: Endpoint) -> LineFiles:
    return Moody(endpoint)


def keeping(endpoint: Endpoint) -> LineFiles:
    return Keeping(endpoint)


def hasty(endpoint: Endpoint) -> LineFiles:
    return Hasty(endpoint)


def forgetful(endpoint: Endpoint) -> LineFiles:
    return Forgetful(endpoint)


def hidden(endpoint: Endpoint) -> LineFiles:
    return Hidden(endpoint)
