"""The same three questions to every engine: put a row in, read the rows, through nothing but the engine itself."""

from __future__ import annotations

import http.client
import json
from typing import Any

_CHROMA = "/api/v2/tenants/default_tenant/databases/default_database/collections"


def write(engine: Any, value: str) -> None:
    if engine.name == "redis":
        engine.ask("RPUSH", "rows", value)
    elif engine.name in ("postgres", "sqlite"):
        engine.ask("CREATE TABLE IF NOT EXISTS rows (value text)")
        engine.ask(f"INSERT INTO rows VALUES ('{value}')")
    elif engine.embedded:
        engine.ask("add", "rows", ids=[value], documents=[value], embeddings=[[1.0, 2.0]])
    else:
        collection = _chroma(engine, "POST", _CHROMA, {"name": "rows", "get_or_create": True})["id"]
        body = {"ids": [value], "documents": [value], "embeddings": [[1.0, 2.0]]}
        _chroma(engine, "POST", f"{_CHROMA}/{collection}/add", body)


def read(engine: Any) -> list[str]:
    if engine.name == "redis":
        found: list[str] = engine.ask("LRANGE", "rows", "0", "-1")
        return found
    if engine.name in ("postgres", "sqlite"):
        return [row[0] for row in engine.ask("SELECT value FROM rows")]
    if engine.embedded:
        return list(engine.ask("get", "rows")["documents"])
    collection = _chroma(engine, "GET", f"{_CHROMA}/rows", None)["id"]
    return list(
        _chroma(engine, "POST", f"{_CHROMA}/{collection}/get", {"include": ["documents"]})["documents"]
    )


def _chroma(engine: Any, method: str, path: str, body: dict[str, Any] | None) -> Any:
    connection = http.client.HTTPConnection(engine.endpoint.host, engine.endpoint.port, timeout=30)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        assert response.status in (200, 201), text
        return json.loads(text or b"null")
    finally:
        connection.close()
