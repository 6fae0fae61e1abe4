"""What hinders `recollect chat` from starting is one sentence, before it says where it listens."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.errors import CannotOpen


def refusal(tmp_path: Path, *arguments: str) -> str:
    words = ["chat", "--memory", f"sqlite:///{tmp_path}/memory.db", "--allow-ephemeral", *arguments]
    done = CliRunner().invoke(build(words), words)
    assert isinstance(done.exception, CannotOpen), done.output
    assert done.output == ""
    return str(done.exception)


def test_a_port_that_somebody_else_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refusal(tmp_path, "--port", str(port))
    assert told == f"cannot listen on 127.0.0.1, port {port}: Address already in use; choose another --port"


def test_a_model_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert refusal(tmp_path, "--port", str(port), "--model", "gpt").startswith(
        "no key for OpenAI's API: set OPENAI_API_KEY"
    )


def test_an_index_without_a_scheme(tmp_path: Path) -> None:
    assert refusal(tmp_path, "--index", "nonsense").startswith(
        "the index's address has no scheme; use chroma:///folder"
    )
