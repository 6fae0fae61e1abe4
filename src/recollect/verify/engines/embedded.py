"""Engines without a server: the runner's side of the worker process that they live in."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from recollect.verify.host.errors import EngineError

WORKER = Path(__file__).with_name("embedded_worker.py")


def ask(address: Path, request: dict[str, Any], timeout_s: float = 30.0) -> Any:
    """One request to a worker; OSError if it is not there or was killed before it answered."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(address))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the worker ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise EngineError(f"the embedded engine answered: {answer['error']}")
    return answer["ok"]


def answers(address: Path, request: dict[str, Any]) -> bool:
    try:
        ask(address, request, timeout_s=5.0)
    except (OSError, EngineError):
        return False
    return True
