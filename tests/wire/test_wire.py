"""The kit's own small clients against real servers: authentication, errors, binary data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.verify import engines
from recollect.verify.host.waiting import wait_until
from recollect.verify.wire import pgwire, resp


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A server whose port asks for a password, by one method per role."""
    engine: Any = engines.create("postgres", "fsync-off")
    engine.start()
    methods = ("scram-sha-256", "md5", "password")
    hba = ["local all all trust", *(f"host all {method[:5]} 127.0.0.1/32 {method}" for method in methods)]
    hba.append("host nowhere all 127.0.0.1/32 trust")
    Path(engine.ask("SHOW hba_file")[0][0]).write_text("\n".join(hba) + "\n")
    engine.ask("SELECT pg_reload_conf()")
    wait_until(lambda: _obeys_the_new_file(engine), 10.0, "the new pg_hba.conf is not in force")
    for method in methods:
        encryption = "md5" if method == "md5" else "scram-sha-256"
        engine.ask(
            f"SET password_encryption = '{encryption}'; CREATE ROLE \"{method[:5]}\" LOGIN PASSWORD 's3cr''t é'"
        )
    yield engine
    engine.close()


def _obeys_the_new_file(engine: Any) -> bool:
    """Which lets everybody in to a database that does not exist."""
    try:
        pgwire.Connection(pgwire.Address(port=engine.port, database="nowhere"))
    except pgwire.PgError as error:
        return error.code == "3D000"
    return False


@pytest.mark.parametrize("role", ["scram", "md5", "passw"])
def test_every_kind_of_password(postgres: Any, role: str) -> None:
    address = pgwire.Address(port=postgres.port, user=role, password="s3cr't é", database="postgres")
    with pgwire.Connection(address) as connection:
        assert connection.value("SELECT current_user") == role
    for wrong in ("guess", None):
        with pytest.raises(pgwire.PgError) as caught:
            pgwire.Connection(replace(address, password=wrong))
        assert caught.value.code == "28P01"


def test_rows_nulls_errors_and_recovery(postgres: Any) -> None:
    with pgwire.Connection(postgres.address) as connection:
        assert connection.ask("SELECT NULL, 'é', 1; SELECT 'last'") == [("last",)]
        assert connection.ask("SELECT NULL, 'é', 1") == [(None, "é", "1")]
        with pytest.raises(pgwire.PgError, match="division by zero"):
            connection.ask("SELECT 1/0")
        name, text = pgwire.quoted('a"b'), pgwire.literal("it's")
        assert connection.ask(f"SELECT {text} AS {name}") == [("it's",)]


def test_redis_replies_of_every_kind(tmp_path: Path) -> None:
    engine: Any = engines.create("redis", "none")
    engine.start()
    try:
        with resp.Connection(engine.address) as connection:
            odd = b"\xff\x00\r\n".decode("utf-8", "surrogateescape")
            assert connection.ask("SET", "key", odd) == "OK"
            assert connection.ask("GET", "key") == odd
            assert connection.ask("GET", "nothing") is None
            assert connection.ask("STRLEN", "key") == 4
            assert connection.ask("LRANGE", "nothing", "0", "-1") == []
            with pytest.raises(resp.RespError, match="WRONGTYPE"):
                connection.ask("LPUSH", "key", "x")
            engine.kill()
            with pytest.raises(OSError):
                connection.ask("PING")
    finally:
        engine.close()
