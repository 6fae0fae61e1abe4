"""Behind a real PgBouncer: what works goes on working, and what does not is refused at open with the cure."""

import asyncio
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
from urllib.parse import urlsplit

import asyncpg
import pytest

from recollect import CannotOpen, EngineUnavailable, Message, NotWritten, open_store
from recollect.recall import open_recall
from recollect.stores.postgres.errors import read_error, write_error
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.ports import Reservation
from tests.contract.reading import texts
from tests.stores.postgres_place import Place

BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

needs_pgbouncer = pytest.mark.skipif(BINARY is None, reason="no PgBouncer: apt-get install pgbouncer")

CURE = r"PgBouncer's session mode, or PgBouncer 1\.21 or newer with max_prepared_statements above 0"

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
