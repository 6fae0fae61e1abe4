"""A folder that turns from one image into another, whatever happened to it in between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recollect.verify.disk import Content, Image, TooLargeError, scan
from recollect.verify.disk.image import DIRECTORY, ImageEntry, Symlink
from recollect.verify.disk.workspace import Workspace

PATHS = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a")


def random_image(rng: random.Random) -> Image:
    entries: dict[str, ImageEntry] = {}
    for path in PATHS:
        above, _, _ = path.rpartition("/")
        if above and entries.get(above) is not DIRECTORY:
            continue
        kind = rng.randrange(6)
        if kind < 3:
            entries[path] = Content.of(bytes([rng.randrange(4)]) * rng.randrange(1, 9000))
        elif kind == 3:
            entries[path] = DIRECTORY
        elif kind == 4:
            entries[path] = Symlink(rng.choice(["a", "nowhere"]))
    return Image(entries)


@pytest.mark.parametrize("seed", range(5))
def test_it_becomes_any_image_after_any_other(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    workspace = Workspace(tmp_path / "space")
    for _ in range(40):
        image = random_image(rng)
        workspace.become(image)
        assert scan(workspace.folder).image == image
        tamper(workspace.folder, rng)


def tamper(folder: Path, rng: random.Random) -> None:
    """What an engine's recovery might do."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        kind = rng.randrange(5)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            with path.open("r+b") as file:
                file.write(b"recovered")
        elif kind == 2:
            path.rename(path.with_name("moved"))
    (folder / "new").write_text("made by recovery")


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    image = Image({f"file{i}": Content.of(b"x" * i) for i in range(100)})
    workspace = Workspace(tmp_path / "space")
    assert workspace.become(image) == 100
    assert workspace.become(image) == 0
    assert workspace.become(image.replacing({"file7": Content.of(b"other")})) == 1
    (workspace.folder / "file9").write_text("changed")
    assert workspace.become(image) == 2


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLargeError):
        Workspace(tmp_path / "space", limit_bytes=10).become(Image({"f": Content.of(b"x" * 100)}))
