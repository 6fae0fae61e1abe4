"""The engine's password, for a target that connects by host and port alone.

PostgreSQL's drivers (libpq, everything built on it, and asyncpg) look for a password in the file that `PGPASSFILE`
names. The target's processes get such a file, with an entry for each address they are given and nothing else, so a
factory that gives only host, port and user still works. Redis and Chroma need nothing: see their engines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host import folder

VARIABLE = "PGPASSFILE"


def environment_for(endpoint: Endpoint) -> dict[str, str]:
    """What a process that gets this endpoint needs in its environment."""
    lines = "".join(_entries(endpoint))
    if not lines:
        return {}
    path = folder.current() / f"pgpass-{hashlib.sha256(lines.encode()).hexdigest()[:16]}"
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)  # libpq ignores the file if others can read it
        draft.write_text(lines)
        draft.rename(path)
    return {VARIABLE: str(path)}


def _entries(endpoint: Endpoint) -> Iterator[str]:
    """host:port:database:user:password"""
    if not endpoint.engine.startswith("postgres"):
        return
    for url in (*endpoint.nodes, *(() if endpoint.nodes else (endpoint.url,)), *endpoint.replicas):
        parts = urlsplit(url)
        if parts.hostname and parts.password:
            words = (parts.hostname, str(parts.port or 5432), "*", unquote(parts.username or "*"))
            yield ":".join(map(_escaped, (*words, unquote(parts.password)))) + "\n"


def _escaped(word: str) -> str:
    return word if word == "*" else word.replace("\\", "\\\\").replace(":", "\\:")


@contextmanager
def logged_in(endpoint: Endpoint) -> Iterator[None]:
    """Gives this process the environment that the endpoint needs, and restores it afterwards."""
    added = environment_for(endpoint)
    former = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        restore(former)


def restore(former: Mapping[str, str | None]) -> None:
    for name, value in former.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
