"""A file system that forgets gives at most `written`, and who asks for more is told why."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Durability, DurabilityUnavailable, Message, filesystems, open_store
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings
from recollect.recall.rows_sqlite import SqliteRows
from recollect.store import Options

SHM = Path("/dev/shm")

DISK = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
OVERLAY = "700 600 0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n"
EMPTY_DIR = (
    "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "801 27 8:1 /var/lib/kubelet/pods/3f1c/volumes/kubernetes.io~empty-dir/cache {folder} rw - ext4 /dev/sda1 rw\n"
)
RECORDED = {
    "a container's own layer (overlay)": OVERLAY,
    "a Kubernetes emptyDir, which is deleted with the pod": EMPTY_DIR,
}


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder that is in memory."""
    if not (SHM.is_dir() and Path("/proc/self/mountinfo").exists()):
        pytest.skip("no /dev/shm on this machine")
    with tempfile.TemporaryDirectory(dir=SHM, prefix="recollect-test-") as folder:
        yield Path(folder)


def recorded(monkeypatch: pytest.MonkeyPatch, mountinfo: str, folder: Path) -> None:
    text = mountinfo.format(folder=folder)
    monkeypatch.setattr(filesystems, "mountinfo_of", lambda: text)


async def given_at(path: Path, policy: str = "wal-full") -> Durability:
    async with open_store(f"sqlite:///{path}?policy={policy}") as store:
        alone = await store.append("s", [Message("user", "hello")], turn="1")
        together = await store.append("s", [Message("user", "and"), Message("user", "again")])
        repeated = await store.append("s", [Message("user", "hello")], turn="1")
        said = {alone.durability, together.durability, repeated.durability, store.durability}
        assert len(said) == 1
        return said.pop()


@pytest.mark.parametrize("policy", ["wal-full", "delete-extra", "wal-normal", "delete-full"])
async def test_a_receipt_from_memory_is_at_most_written(memory: Path, policy: str) -> None:
    assert await given_at(memory / "m.db", policy) is Durability.WRITTEN


async def test_fsynced_in_memory_is_refused_with_the_reason_and_leaves_nothing(memory: Path) -> None:
    with pytest.raises(DurabilityUnavailable) as refusal:
        await open_store(f"sqlite:///{memory}/m.db", durability="fsynced")
    assert "/dev/shm is a tmpfs, which is memory, so 'fsynced' is out of reach" in str(refusal.value)
    assert not list(memory.iterdir())


async def test_a_link_into_memory_is_followed(memory: Path, tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to(memory)
    (tmp_path / "m.db").symlink_to(memory / "linked.db")
    for path in (tmp_path / "there" / "m.db", tmp_path / "m.db"):
        with pytest.raises(DurabilityUnavailable):
            await open_store(f"sqlite:///{path}", durability="fsynced")


async def test_what_can_be_lost_is_said_once(memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "recollect"):
        async with open_store(f"sqlite:///{memory}/m.db") as store:
            assert store.notice is not None
            assert "can lose everything: /dev/shm is a tmpfs" in store.notice
    assert [record.getMessage() for record in caplog.records] == [f"{memory}/m.db: {store.notice}"]


@pytest.mark.parametrize("reason", RECORDED)
async def test_containers_and_pods_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    recorded(monkeypatch, RECORDED[reason], tmp_path)
    assert await given_at(tmp_path / "m.db") is Durability.WRITTEN
    with pytest.raises(DurabilityUnavailable) as refusal:
        await open_store(f"sqlite:///{tmp_path}/m.db", durability="fsynced")
    assert reason in str(refusal.value)
    async with open_store(f"sqlite:///{tmp_path}/m.db", durability="written") as store:
        assert store.durability is Durability.WRITTEN


@pytest.mark.parametrize("mountinfo", [DISK, ""])
async def test_a_disk_and_what_cannot_be_seen_are_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mountinfo: str
) -> None:
    recorded(monkeypatch, mountinfo, tmp_path)
    assert await given_at(tmp_path / "m.db") is Durability.FSYNCED


async def test_long_term_memory_says_the_same(memory: Path) -> None:
    rows = await SqliteRows.open(f"sqlite:///{memory}/m.db", Options())
    try:
        assert rows.durability is Durability.WRITTEN
    finally:
        await rows.close()
    with pytest.raises(DurabilityUnavailable):
        await SqliteRows.open(f"sqlite:///{memory}/m.db", Options(durability=Durability.FSYNCED))


async def test_a_chat_that_may_be_ephemeral_starts_and_promises_less(memory: Path) -> None:
    settings = ChatSettings(memory=f"sqlite:///{memory}/data/m.db", index="none", allow_ephemeral=True)
    service = await ChatService.open(settings)
    try:
        heard = await service.hear("xiao-li", "s", "I am allergic to peanuts", "turn-1")
        assert heard.receipt.durability is Durability.WRITTEN
        assert service.engine()["durability"] == "written"
    finally:
        await service.close()
