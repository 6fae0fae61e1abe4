"""What breaks a plain Chroma collection is noticed by ours, and mended once. Every fault is real.

That the plain one is caught in the same faults, and ours holds in the kit, is in `test_kit.py`.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import StoreReplaced
from recollect.verify.recall_targets import recall
from tests.recall.processes import Endpoint, Process, messages

pytestmark = pytest.mark.xdist_group("recall-faults")

BATCH = 100
THRESHOLD = 1_000


def ids(prefix: str, count: int) -> set[str]:
    return {message.id for message in messages(prefix, 0, count)}


def endpoint_at(path: Path) -> Endpoint:
    path.mkdir(parents=True, exist_ok=True)
    return Endpoint(f"chroma://{path}", path)


def delete(folder: Path) -> None:
    """At once, although its owner may be writing into it: moved away, then removed until nothing is left."""
    doomed = folder.rename(folder.with_name(f"{folder.name}-deleted"))
    deadline = time.monotonic() + 30
    while doomed.exists():
        assert time.monotonic() < deadline
        shutil.rmtree(doomed, ignore_errors=True)


def divergence(process: Process, acknowledged: set[str]) -> str | None:
    """The name of what is wrong with a store that should have all of these, or None."""
    try:
        listed, found = process.ask("ids", "s")
    except (RuntimeError, AssertionError, EOFError, ConnectionError):
        return "unreadable"
    if not listed and acknowledged:
        return "silent-reset"
    if acknowledged - listed:
        return "lost-tail"
    return "index-divergence" if listed - found else None


def kill_in_the_flush(
    factory: Callable[[Any], Any], endpoint: Endpoint, in_flush: Callable[[Path], bool]
) -> set[str]:
    """Writes up to the second crossing of the threshold, kills inside the call that crosses; what was acknowledged."""
    with Process(factory, endpoint) as writer:
        acknowledged, outstanding = 0, False
        while acknowledged < 2 * THRESHOLD - BATCH:
            acknowledged = writer.ask("append", "s", "kill", acknowledged, BATCH)
            if acknowledged % THRESHOLD == 0 and factory is recall:
                writer.ask("ready")
        if factory is recall:
            writer.ask("ready")
        assert not in_flush(endpoint.path)
        deadline = time.monotonic() + 60
        while not in_flush(endpoint.path):  # each crossing is a chance; a busy machine may look away in one
            assert time.monotonic() < deadline, "the moment never came"
            if not outstanding:
                writer.send("append", "s", "kill", acknowledged, BATCH)
                outstanding = True
            elif writer.pipe.poll():
                acknowledged, outstanding = writer.answer(), False
        writer.kill()
        while writer.pipe.poll():
            try:
                acknowledged = writer.pipe.recv()
            except (EOFError, ConnectionError):
                break
    return ids("kill", acknowledged)


def state_says_flushing(path: Path) -> bool:
    for file in path.glob("recollect-index/slot-*/0*/state.json"):
        try:
            if json.loads(file.read_text())["flushing"]:
                return True
        except (FileNotFoundError, ValueError):
            continue
    return False


def test_killed_inside_the_flush_of_ours(tmp_path: Path) -> None:
    endpoint = endpoint_at(tmp_path)
    acknowledged = kill_in_the_flush(recall, endpoint, state_says_flushing)
    with Process(recall, endpoint) as reader:
        assert divergence(reader, acknowledged) is None  # while it is being rebuilt
        assert reader.ask("ready") == 1, "the torn index was not noticed"
        assert reader.ask("method") == "index"
        assert divergence(reader, acknowledged) is None


def test_the_folder_of_our_index_is_deleted(tmp_path: Path) -> None:
    endpoint = endpoint_at(tmp_path)
    with Process(recall, endpoint) as writer:
        writer.ask("append", "s", "gone", 0, BATCH)
        before = writer.ask("ready")
        delete(endpoint.path / "recollect-index")
        assert divergence(writer, ids("gone", BATCH)) is None
        writer.ask("append", "s", "gone", BATCH, BATCH)
        assert divergence(writer, ids("gone", 2 * BATCH)) is None
        assert writer.ask("ready") == before + 1
        assert writer.ask("method") == "index"
        assert divergence(writer, ids("gone", 2 * BATCH)) is None
    with Process(recall, endpoint) as reader:
        assert divergence(reader, ids("gone", 2 * BATCH)) is None


def test_our_whole_folder_is_deleted(tmp_path: Path) -> None:
    """The rows are gone too: that cannot be held, but it must be said, at once."""
    endpoint = endpoint_at(tmp_path / "data")
    with Process(recall, endpoint) as writer:
        writer.ask("append", "s", "gone", 0, BATCH)
        delete(endpoint.path)
        with pytest.raises(StoreReplaced):
            writer.ask("append", "s", "gone", BATCH, BATCH)
        with pytest.raises(StoreReplaced):
            writer.ask("ids", "s")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 16 MB: a torn vector file may claim to have terabytes, here it cannot take them."""
    if os.geteuid() != 0:
        pytest.skip("mounting a size-capped tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_under_our_index(small_disk: Path, tmp_path: Path) -> None:
    """The index is on the small disk, the rows are not: memory goes on while the index cannot."""
    data = tmp_path / "data"
    data.mkdir()
    (small_disk / "index").mkdir()
    (data / "recollect-index").symlink_to(small_disk / "index")
    endpoint = endpoint_at(data)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(13_000_000))
    count = 0
    with Process(recall, endpoint) as writer:
        while count < 2 * THRESHOLD:
            count = writer.ask("append", "s", "full", count, BATCH)
        assert writer.ask("method") == "scan", "the index found room for all of them"
    ballast.unlink()
    acknowledged = ids("full", count)
    with Process(recall, endpoint) as reader:
        listed, found = reader.ask("ids", "s")
        assert listed == acknowledged
        assert found == acknowledged
