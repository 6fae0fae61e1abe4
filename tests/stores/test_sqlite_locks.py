"""What this process reads of a file that it has open as a store does not take the store's locks away."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from recollect import Message, open_store
from recollect.audit import audit
from recollect.doctor import examine
from recollect.raw_reading import _kept, first_bytes

ANOTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA user_version").fetchone()
connection.execute("SELECT count(*) FROM recollect_messages").fetchone()
connection.close()  # as the last user of the file: if nobody has a lock, the log is deleted
"""


async def no_reading(url: str) -> None:
    """The healthy twin: with the store's lock, the log stays."""


async def doctor(url: str) -> None:
    await examine(url)


async def whole(url: str) -> None:
    await audit(url, rate=None)


@pytest.mark.parametrize("reads", [no_reading, doctor, whole])
async def test_the_log_stays_while_the_store_uses_it(
    reads: Callable[[str], Awaitable[None]], tmp_path: Path
) -> None:
    url, path = f"sqlite:///{tmp_path}/memory.db", tmp_path / "memory.db"
    async with open_store(url) as store:
        await store.append("s", [Message("user", "one")])
        await reads(url)
        subprocess.run([sys.executable, "-c", ANOTHER, str(path)], check=True)
        assert Path(f"{path}-wal").exists()
        await store.append("s", [Message("user", "two")])
    async with open_store(url) as store:
        assert len(await store.history("s")) == 2


def test_a_swapped_file_is_read_and_a_deleted_one_let_go(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"first")
    other.write_bytes(b"second")
    assert first_bytes(path, 5) == b"first"
    found = path.stat()
    key = (found.st_dev, found.st_ino)
    assert key in _kept
    os.replace(other, path)  # noqa: PTH105
    assert first_bytes(path, 6) == b"second"
    assert first_bytes(path, 3) == b"sec"
    assert key not in _kept
    with pytest.raises(FileNotFoundError):
        first_bytes(tmp_path / "missing", 1)
