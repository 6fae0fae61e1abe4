"""A named pipe in place of a file is refused in one sentence: no command waits for somebody to write into it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect import Message, Refused, sync
from recollect.cli import build

COMMANDS = {
    "doctor": (["doctor", "{pipe}"], "pipe"),
    "audit": (["audit", "sqlite:///{pipe}"], "pipe"),
    "audit --resume": (["audit", "sqlite:///{memory}", "--resume", "{pipe}"], "pipe"),
    "audit --witness": (["audit", "sqlite:///{memory}", "--witness", "{pipe}"], "pipe"),
    "erase --witness": (["erase", "sqlite:///{memory}", "a", "--yes", "--witness", "{pipe}"], "pipe"),
    "import": (["import", "sqlite:///{memory}", "{pipe}"], "pipe"),
    "report of a history": (["report", "{pipe}"], "pipe"),
    "report of a run": (["report", "{folder}"], "results.json"),
    "replay": (["replay", "{folder}"], "scenario.json"),
    "verify --baseline": (["verify", "sqlite", "--baseline", "{pipe}"], "pipe"),
    "recall-eval": (["recall-eval", "{pipe}"], "pipe"),
}


@contextmanager
def ending_pipe(path: Path) -> Iterator[Path]:
    """A pipe that ends after a while, so that a mistake here is a failure and not a hang."""
    os.mkfifo(path)
    with os.fdopen(os.open(path, os.O_RDWR), "wb", buffering=0) as writer:
        writer.write(b"?")
        timer = threading.Timer(20, writer.close)
        timer.start()
        try:
            yield path
        finally:
            timer.cancel()
            timer.join()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_is_refused(name: str, tmp_path: Path) -> None:
    arguments, file = COMMANDS[name]
    memory = tmp_path / "memory.db"
    with sync.open_store(f"sqlite:///{memory}") as store:
        store.append("a", [Message("user", "hello")])
    (tmp_path / "given").mkdir()
    with ending_pipe(tmp_path / "given" / file) as pipe:
        places = {"pipe": pipe, "folder": pipe.parent, "memory": memory}
        given = [argument.format(**places) for argument in arguments]
        ended = CliRunner().invoke(build(given), given)
    said = ended.output + str(ended.exception)  # `main` prints the errors that say what to do next
    assert ended.exit_code == 2 or isinstance(ended.exception, Refused), said
    assert "Not a regular file" in said
    assert str(pipe) in said.replace("\n", "")
