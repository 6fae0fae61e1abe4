"""Contents, images, and folders made of them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.verify.disk import Content, Image, TooLargeError, materialise, scan
from recollect.verify.disk.image import DIRECTORY, EMPTY, PAGE, ImageEntry, Symlink, rewrite

EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3 * PAGE), st.binary(max_size=2 * PAGE)),
        st.tuples(st.just("resize"), st.integers(0, 4 * PAGE), st.just(b"")),
        st.tuples(st.just("zero"), st.integers(0, 3 * PAGE), st.binary(max_size=PAGE + 7)),
    ),
    max_size=12,
)


def edited(content: Content, plain: bytearray, edits: list[tuple[str, int, bytes]]) -> Content:
    """The same edits on a Content and on a bytearray."""
    for kind, at, data in edits:
        if kind == "write":
            content = content.write(at, data)
            if data:
                plain.extend(bytes(max(0, at - len(plain))))
                plain[at : at + len(data)] = data
        elif kind == "resize":
            content = content.resize(at)
            del plain[at:]
            plain.extend(bytes(at - len(plain)))
        else:
            content = content.zero(at, len(data))
            end = min(len(plain), at + len(data))
            plain[at:end] = bytes(max(0, end - at))
    return content


@given(EDITS)
def test_content_is_a_bytearray_that_shares(edits: list[tuple[str, int, bytes]]) -> None:
    plain = bytearray()
    content = edited(EMPTY, plain, edits)
    assert content.read() == bytes(plain)
    assert content.size == len(plain)
    assert content == Content.of(bytes(plain)).resize(len(plain)), "the digest depends on the way there"
    rebuilt = bytearray(content.size)
    for offset, data in content.runs():
        rebuilt[offset : offset + len(data)] = data
    assert rebuilt == plain


@given(EDITS, EDITS)
def test_different_bytes_have_different_digests(
    one: list[tuple[str, int, bytes]], two: list[tuple[str, int, bytes]]
) -> None:
    plain1, plain2 = bytearray(), bytearray()
    content1, content2 = edited(EMPTY, plain1, one), edited(EMPTY, plain2, two)
    assert (content1.digest == content2.digest) == (plain1 == plain2)


def test_page_order_matters() -> None:
    a, b = b"a" * PAGE, b"b" * PAGE
    assert Content.of(a + b) != Content.of(b + a)


def test_replacing_an_entry_equals_building_the_image_anew() -> None:
    image = Image({"a": Content.of(b"1"), "b": Content.of(b"2")})
    changed = image.replacing({"a": Content.of(b"3"), "b": None, "c": DIRECTORY})
    assert changed == Image({"a": Content.of(b"3"), "c": DIRECTORY})
    assert changed.difference(image).keys() == {"a", "b", "c"}
    assert image == Image({"a": Content.of(b"1"), "b": Content.of(b"2")}), "images are immutable"


def test_a_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    image = Image(
        {
            "empty": EMPTY,
            "deep": DIRECTORY,
            "deep/er": DIRECTORY,
            "deep/er/file": Content.of(os.urandom(3 * PAGE + 5)),
            "link": Symlink("deep/er/file"),
            "näme with space": Content.of(b"x"),
        }
    )
    materialise(image, tmp_path / "made")
    assert scan(tmp_path / "made").image == image


def test_a_terabyte_of_holes_stays_small(tmp_path: Path) -> None:
    terabyte = 1 << 40
    image = Image({"sparse": EMPTY.resize(terabyte).write(terabyte - 3, b"end").write(1 << 30, b"middle")})
    materialise(image, tmp_path / "made", limit_bytes=3 * PAGE)
    made = (tmp_path / "made" / "sparse").stat()
    assert made.st_size == terabyte
    assert made.st_blocks * 512 < 1 << 20
    assert scan(tmp_path / "made").image == image


def test_an_image_beyond_the_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    image = Image({"big": Content.of(b"x" * (3 * PAGE))})
    with pytest.raises(TooLargeError, match="12288 bytes, the limit is 8192"):
        materialise(image, tmp_path / "made", limit_bytes=2 * PAGE)
    assert not (tmp_path / "made").exists()


def test_sockets_and_pipes_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert scan(tmp_path).image == Image({})


TREES = st.dictionaries(
    st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f"]),
    st.one_of(st.just(DIRECTORY), st.just(Symlink("a")), st.binary(max_size=9).map(Content.of)),
)


def rooted(tree: dict[str, ImageEntry]) -> Image:
    """What lies in something that is no directory is not there."""
    kept: dict[str, ImageEntry] = {}
    for path in sorted(tree):
        above = path.rpartition("/")[0]
        if not above or kept.get(above) is DIRECTORY:
            kept[path] = tree[path]
    return Image(kept)


@given(TREES, TREES)
def test_a_folder_becomes_another_image(before: dict[str, ImageEntry], after: dict[str, ImageEntry]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "data"
        materialise(rooted(before), folder)
        rewrite(folder, rooted(before), rooted(after))
        assert scan(folder).image == rooted(after)


def test_what_is_equal_is_not_written_again(tmp_path: Path) -> None:
    before = Image({"kept": Content.of(b"1"), "changed": Content.of(b"2"), "gone": Content.of(b"3")})
    after = before.replacing({"changed": Content.of(b"4"), "gone": None})
    materialise(before, tmp_path / "data")
    inode = (tmp_path / "data" / "kept").stat().st_ino
    rewrite(tmp_path / "data", before, after)
    assert (tmp_path / "data" / "kept").stat().st_ino == inode
    assert scan(tmp_path / "data").image == after
