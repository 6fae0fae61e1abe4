"""A memory folder on storage that forgets is refused."""

from pathlib import Path

import pytest

from recollect import filesystems
from recollect.chat.ephemeral import EphemeralStorage, refuse_ephemeral


def on(monkeypatch: pytest.MonkeyPatch, mountinfo: str | None) -> None:
    monkeypatch.setattr(filesystems, "mountinfo_of", lambda: mountinfo)


def test_the_refusal_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "1 0 0:1 / / rw - tmpfs tmpfs rw\n")
    with pytest.raises(EphemeralStorage) as refusal:
        refuse_ephemeral(tmp_path)
    sentence = str(refusal.value)
    assert "would be forgotten: / is a tmpfs" in sentence
    assert "--allow-ephemeral" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("mountinfo", ["1 0 8:1 / / rw - ext4 /dev/sda1 rw\n", "", None])
def test_a_disk_is_not_refused_nor_what_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mountinfo: str | None
) -> None:
    on(monkeypatch, mountinfo)
    refuse_ephemeral(tmp_path)
