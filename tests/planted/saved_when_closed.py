"""A memory for one process, which says so: the plant writes its file when it is closed, and so never if it is killed.

That only one process at a time may use it excuses neither store from keeping what it acknowledged. Beside it, the twin
writes every message at once. It reads the file when it is opened and never again, which is right in one process and
would be stale in several.
"""

import json
import os
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "kill-app", "append", ("lost-tail", "dropped", "silent-reset"))


class InOneProcess:
    traits = ("one_process",)

    def __init__(self, endpoint: Endpoint, at_once: bool) -> None:
        assert endpoint.path is not None
        self.path = Path(endpoint.path).with_suffix(".jsonl")
        self.at_once = at_once
        self.lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.saved = len(self.lines)

    def append_message(self, session: str, message: Any) -> None:
        self.lines.append(json.dumps([session, message]))
        if self.at_once:
            self.save()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = [json.loads(line) for line in self.lines]
        return [message for name, message in said if name == session][-limit:]

    def save(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in self.lines[self.saved :])
            file.flush()
            os.fsync(file.fileno())
        self.saved = len(self.lines)

    def close(self) -> None:
        self.save()


def factory(endpoint: Endpoint) -> InOneProcess:
    return InOneProcess(endpoint, at_once=False)


def twin(endpoint: Endpoint) -> InOneProcess:
    return InOneProcess(endpoint, at_once=True)
