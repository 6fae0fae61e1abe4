"""Behind a real PgBouncer: what works goes on working, and what does not is refused at open with the cure."""

import asyncio
import gc
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import asyncpg
import pytest

from recollect import CannotOpen, EngineUnavailable, Message, NotWritten, open_store
from recollect.recall import open_recall
from recollect.stores.postgres import opening
from recollect.stores.postgres.errors import read_error, write_error
from recollect.stores.postgres.hosts import connect
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.ports import Reservation
from tests.contract.reading import texts
from tests.stores.postgres_place import Place

BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

needs_pgbouncer = pytest.mark.skipif(BINARY is None, reason="no PgBouncer: apt-get install pgbouncer")

CURE = r"session mode, or PgBouncer 1\.21 or newer with max_prepared_statements above 0, or add \?prepared=no"

Pooler = Callable[..., str]


@pytest.fixture
def pooler(postgres: PostgresEngine, tmp_path: Path) -> Iterator[Pooler]:
    """Starts PgBouncer in a mode in front of the test's PostgreSQL, and gives the address that leads through it."""
    running: list[subprocess.Popen[bytes]] = []
    reservations: list[Reservation] = []

    def start(mode: str, **settings: object) -> str:
        behind = urlsplit(postgres.endpoint.url)
        reservations.append(Reservation())
        port = reservations[-1].port
        folder = tmp_path / f"pgbouncer-{mode}"
        folder.mkdir()
        secret = f" password={behind.password}" if behind.password else ""
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "auth_type": "any",
            "pool_mode": mode,
            "unix_socket_dir": "",
            "logfile": folder / "log",
            "pidfile": folder / "pid",
            **settings,
        }
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={behind.port} user={behind.username}{secret}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in lines.items())
        )
        assert BINARY is not None
        user = None
        if os.getuid() == 0:  # it refuses to run as root
            user = "nobody"
            _let_in(folder, user)
        running.append(subprocess.Popen([BINARY, "-q", str(folder / "pgbouncer.ini")], user=user))
        _wait_for(port, running[-1])
        return f"postgresql://{behind.username}@127.0.0.1:{port}{behind.path}"

    yield start
    for process in running:
        process.kill()
        process.wait()
    for reservation in reservations:
        reservation.close()


def _let_in(folder: Path, user: str) -> None:
    for path in (folder, *folder.iterdir()):
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, "PgBouncer ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


@needs_pgbouncer
@pytest.mark.parametrize("size", [1, 20])
async def test_session_mode_is_no_harm(postgres: PostgresEngine, pooler: Pooler, size: int) -> None:
    session = f"session-{uuid.uuid4()}"
    async with open_store(postgres.endpoint.url):  # the schema takes two connections
        pass
    url = pooler("session", default_pool_size=size)
    async with open_store(url, pool_size=1, timeout_s=20) as store:
        await asyncio.gather(
            *(store.append(session, [Message("user", str(n))], turn=str(n)) for n in range(9))
        )
        assert sorted(await texts(store, session)) == [str(n) for n in range(9)]


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_mode_that_shares_sessions_is_refused_with_the_cure(pooler: Pooler, mode: str) -> None:
    url = pooler(mode)
    for _ in range(3):
        with pytest.raises(CannotOpen, match=CURE):
            await open_store(url)
    with pytest.raises(CannotOpen, match=CURE):
        await open_recall(url)


@needs_pgbouncer
@pytest.mark.parametrize("size", [1, 2, 20])
async def test_many_that_open_at_once_are_all_refused(
    postgres: PostgresEngine, pooler: Pooler, size: int
) -> None:
    """Each takes sessions away from the others, so that what one looks for may be where it does not look."""
    async with open_store(postgres.endpoint.url):
        pass
    url = pooler("transaction", default_pool_size=size)
    for _ in range(6):
        opened = await asyncio.gather(
            *(open_store(url, timeout_s=20) for _ in range(12)), return_exceptions=True
        )
        assert [str(one) for one in opened if not isinstance(one, CannotOpen)] == []
        assert all(re.search(CURE, str(one)) for one in opened), opened


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_without_prepared_statements_sessions_may_be_shared(
    postgres: PostgresEngine, pooler: Pooler, mode: str
) -> None:
    """Three server sessions for two stores with eight connections each, schema and all; nobody else has any."""
    await _admin(postgres, f"DROP DATABASE IF EXISTS shared_{mode}")
    await _admin(postgres, f"CREATE DATABASE shared_{mode}")
    through = urlsplit(pooler(mode, default_pool_size=3 if mode == "transaction" else 20))
    url = through._replace(path=f"/shared_{mode}", query="prepared=no").geturl()
    async with open_store(url, timeout_s=60) as one, open_store(url, timeout_s=60) as two:
        appends = [
            store.append(f"{name}-{task}", [Message("user", str(n))], turn=str(n))
            for name, store in (("one", one), ("two", two))
            for task in range(8)
            for n in range(6)
        ]
        receipts = await asyncio.gather(*appends)
        assert all(receipt.durability.name for receipt in receipts)
        for name, task in ((name, task) for name in ("one", "two") for task in range(8)):
            assert sorted(await texts(two, f"{name}-{task}"), key=int) == [str(n) for n in range(6)]
        await one.append("one-0", [Message("user", "0")], turn="0")
        assert (await texts(two, "one-0")).count("0") == 1, "a turn that is sent again is stored once"
        await one.forget("one-1", erase=True)
        assert await texts(two, "one-1") == []
    async with (
        open_store(url.replace("no", "yes"), timeout_s=60) if mode == "session" else open_store(url) as again
    ):
        assert await again.position("two-7") == 6
    await (await open_recall(url)).close()


async def _admin(postgres: PostgresEngine, statement: str) -> None:
    connection = await asyncpg.connect(postgres.endpoint.url)
    await connection.execute(statement)
    await connection.close()


@needs_pgbouncer
async def test_statement_mode_is_refused_without_prepared_statements_too(pooler: Pooler) -> None:
    with pytest.raises(CannotOpen, match="a pooler in statement mode refuses transactions"):
        await open_store(f"{pooler('statement')}?prepared=no")


@pytest.mark.parametrize("query", ["?prepared=no", "?application_name=x&prepared=no"])
async def test_statements_are_prepared_unless_the_address_says_no(
    postgres: PostgresEngine, query: str
) -> None:
    """Whether they are, the server itself says: it lists those of the session that asks."""
    for url, kept in ((postgres.endpoint.url, 1), (f"{postgres.endpoint.url}{query}", 0)):
        connection = await connect(url, time.monotonic() + 20)
        for _ in range(3):
            await connection.fetchval("SELECT $1::int", 1)
        listed = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'"
        assert await connection.fetchval(listed) == kept
        await connection.close()


async def test_another_value_of_prepared_is_named(postgres: PostgresEngine) -> None:
    with pytest.raises(CannotOpen, match="prepared=maybe: yes or no"):
        await open_store(f"{postgres.endpoint.url}?prepared=maybe")


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("query", ["statement_cache_size=0", "statement_timeout=soon", "wal_level=minimal"])
async def test_a_setting_that_the_server_does_not_take_is_named(
    postgres: PostgresEngine, query: str, hosts: int, caplog: pytest.LogCaptureFixture
) -> None:
    before, _, place = postgres.endpoint.url.rpartition("@")
    host, _, database = place.partition("/")
    url = f"{before}@{','.join([host] * hosts)}/{database}?{query}"
    with pytest.raises(CannotOpen, match=f"leave {query.partition('=')[0]} out there") as refused:
        await open_store(url)
    assert not isinstance(refused.value, EngineUnavailable), "trying again would not help"
    del refused
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_session_with_another_stores_statement_is_shared_even_if_no_second_one_is_free(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a second connection may take too long; what the first one sees must do then."""

    async def no_other(url: str, deadline: float) -> NoReturn:
        raise EngineUnavailable("no answer in time")

    monkeypatch.setattr(opening, "connect", no_other)
    deadline = time.monotonic() + 20
    await place.direct.execute("PREPARE recollect_ours AS SELECT 1")
    assert not await opening._is_shared(place.direct, "", "recollect_ours", deadline)
    await place.direct.execute("PREPARE recollect_theirs AS SELECT 1")
    assert await opening._is_shared(place.direct, "", "recollect_ours", deadline)
    await place.direct.execute("DEALLOCATE recollect_theirs; DEALLOCATE recollect_ours")
    assert await opening._is_shared(place.direct, "", "recollect_ours", deadline)


@needs_pgbouncer
async def test_a_search_path_in_the_address_is_told_what_to_do(pooler: Pooler) -> None:
    url = pooler("session")
    with pytest.raises(CannotOpen, match=r"takes no search_path .* ALTER ROLE … SET search_path"):
        await open_store(f"{url}?search_path=memory")


async def test_mixed_up_statements_name_the_cure_and_wrote_nothing(place: Place) -> None:
    """The two errors of shared sessions, as the server itself raises them."""
    await place.direct.execute("PREPARE one AS SELECT 1")
    with pytest.raises(asyncpg.DuplicatePreparedStatementError) as twice:
        await place.direct.execute("PREPARE one AS SELECT 1")
    with pytest.raises(asyncpg.InvalidSQLStatementNameError) as missing:
        await place.direct.execute("EXECUTE another")
    for error in (twice.value, missing.value):
        read, written = read_error(error), write_error(error)
        assert isinstance(read, EngineUnavailable)
        assert isinstance(written, NotWritten)
        assert "session mode" in str(read)
        assert "session mode" in str(written)
