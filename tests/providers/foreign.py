"""Everything that is on an engine or in a folder, as a value: taken before and after, the two must be equal."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.verify.wire import pgwire, resp

REDIS_DATABASES = (0, 15)
_SYSTEM = "('pg_catalog', 'information_schema', 'pg_toast')"

Dump = dict[str, Any]


def redis(address: resp.Address) -> Dump:
    """Every key as the server itself would dump it, and whether it expires."""
    found: Dump = {}
    for database in REDIS_DATABASES:
        with resp.Connection(replace(address, database=database)) as connection:
            keys = connection.ask("KEYS", "*")
            assert isinstance(keys, list)
            for key in map(str, keys):
                found[f"{database}: {key}"] = (
                    connection.ask("DUMP", key),
                    connection.ask("PEXPIRETIME", key),
                )
    return found


def postgres(address: pgwire.Address) -> Dump:
    """Every database, schema and table with numbers, owners, comments and rows."""
    with pgwire.Connection(address) as connection:
        databases = connection.ask(
            "SELECT datname, oid, datdba, shobj_description(oid, 'pg_database') FROM pg_database"
            " WHERE datallowconn AND NOT datistemplate ORDER BY 1"
        )
        found: Dump = {"databases": databases}
    for name, *_ in databases:
        with pgwire.Connection(replace(address, database=str(name))) as connection:
            found[str(name)] = _database(connection)
    return found


def _database(connection: pgwire.Connection) -> Dump:
    found: Dump = {
        "schemas": connection.ask(
            "SELECT nspname, oid, nspowner, obj_description(oid, 'pg_namespace') FROM pg_namespace"
            f" WHERE nspname NOT IN {_SYSTEM} ORDER BY 1"
        )
    }
    tables = connection.ask(
        "SELECT nspname, relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        f" WHERE relkind IN ('r', 'v', 'S') AND nspname NOT IN {_SYSTEM} ORDER BY 1, 2"
    )
    for schema, table, number in tables:
        source = f"{pgwire.quoted(str(schema))}.{pgwire.quoted(str(table))}"
        found[f"{source} {number}"] = sorted(connection.ask(f"SELECT t::text FROM {source} t"))
    return found


def docker() -> Dump:
    """Every container, volume and network that the daemon knows."""
    from recollect.verify.providers import docker

    with contextlib.closing(docker.client()) as client:
        collections = (
            client.containers.list(all=True, ignore_removed=True),
            client.volumes.list(),
            client.networks.list(),
        )
        return {f"{type(item).__name__} {item.id}": item.attrs for found in collections for item in found}


def folder(path: Path) -> Dump:
    """Every file, folder and link below a folder, not followed."""
    found: Dump = {}
    for above, folders, files in os.walk(path):
        for name in (*folders, *files):
            entry = Path(above, name)
            status = entry.lstat()
            content = (
                os.fspath(entry.readlink())
                if entry.is_symlink()
                else hashlib.sha256(entry.read_bytes()).hexdigest()
                if entry.is_file()
                else ""
            )
            found[str(entry)] = (status.st_ino, status.st_mode, status.st_uid, content)
    return found
