"""The process that an embedded engine lives in: it can be killed without killing the runner.

Run as `python embedded_worker.py KIND SOCKET PATH SETTINGS`. It opens the database with the policy's
settings, listens on a unix socket, and executes one JSON request per line, one client at a time; an answer is
written when the engine has returned, so an answer received is an operation acknowledged. Only the standard
library is imported here, because the start of a worker is part of every crash cycle; Chroma's package is
imported only for Chroma.
"""

from __future__ import annotations

import atexit
import functools
import json
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

Handler = Callable[[dict[str, Any]], Any]


def sqlite(path: str, settings: dict[str, str]) -> Handler:
    """`{"sql": …, "parameters": […]}` → rows. Autocommit: what is answered is committed."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None)
    for name, value in settings.items():
        connection.execute(f"PRAGMA {name} = {value}")
    atexit.register(connection.close)

    def handle(request: dict[str, Any]) -> Any:
        return connection.execute(request["sql"], request.get("parameters", [])).fetchall()

    return handle


def chroma(path: str, settings: dict[str, str]) -> Handler:
    """`{"call": …, "collection": …, "arguments": {…}}` → what that method of the collection returns.

    The first call opens the folder, not the start: the clients of a run have it open themselves, a worker that nobody
    asks should not be one more process on their files, and the import takes seconds.
    """

    @functools.cache
    def opened() -> Any:
        import chromadb
        from chromadb.config import Settings

        return chromadb.PersistentClient(path, settings=Settings(anonymized_telemetry=False))

    def handle(request: dict[str, Any]) -> Any:
        if request["call"] == "ping":
            return True
        client = opened()
        if request["call"] not in ("add", "get", "query", "count"):
            raise ValueError(f"no call {request['call']!r}")
        # No embedding function: the default one would download a model.
        collection = client.get_or_create_collection(request["collection"], embedding_function=None)
        return getattr(collection, request["call"])(**request.get("arguments", {}))

    return handle


KINDS = {"sqlite": sqlite, "chroma": chroma}


def serve(address: str, handle: Handler) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(16)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                try:
                    answer = {"ok": handle(json.loads(line))}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.sendall(json.dumps(answer, default=str).encode() + b"\n")


def _end(number: int, frame: object) -> None:
    """A polite stop closes the database, which for SQLite is a checkpoint; a kill does not."""
    sys.exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    kind, address, path, settings = sys.argv[1:]
    serve(address, KINDS[kind](path, json.loads(settings)))


if __name__ == "__main__":
    main()
