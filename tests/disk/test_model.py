"""The durability model: its rules one by one, and as properties of random runs."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.verify.disk import MODES, Base, Content, Flag, Image, Mode, Model, Op, Record
from recollect.verify.disk.image import DIRECTORY, PAGE, Directory

TOP = 1
BASE = Base(Image({"old": Content.of(b"old"), "dir": DIRECTORY}), {"": TOP, "old": 2, "dir": 3})


def create(path: str, ino: int) -> Record:
    return Record(Op.CREATE, path, ino=ino)


def write(ino: int, data: bytes, offset: int = 0, *, synced: bool = False) -> Record:
    flags = Flag.SYNCED if synced else 0
    return Record(Op.WRITE, ino=ino, offset=offset, length=len(data), data=data, flags=flags)


def sync(ino: int, *, data_only: bool = False, error: int = 0) -> list[Record]:
    flags = Flag.DATA_ONLY if data_only else 0
    return [Record(Op.SYNC, ino=ino, flags=flags), Record(Op.SYNC_END, ino=ino, offset=error)]


def durable(mode: Mode, *records: Record | list[Record]) -> dict[str, bytes | None]:
    """What is left after a power loss: path → bytes, or None for a directory."""
    return plain(Model(BASE, mode).replay(flat(records)).durable())


def flat(records: Iterable[Record | list[Record]]) -> Iterable[Record]:
    for record in records:
        if isinstance(record, list):
            yield from record
        else:
            yield record


def plain(image: Image) -> dict[str, bytes | None]:
    return {
        path: entry.read() if isinstance(entry, Content) else None for path, entry in image.entries.items()
    }


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_durable_without_a_sync(mode: Mode) -> None:
    assert durable(mode, create("new", 10), write(10, b"data"), write(2, b"NEW")) == {
        "old": b"old",
        "dir": None,
    }


def test_fsync_of_a_new_file_keeps_its_name_on_ext4_only() -> None:
    run = (create("new", 10), write(10, b"data"), sync(10))
    assert durable("ext4", *run)["new"] == b"data"
    assert "new" not in durable("strict", *run)
    assert durable("strict", *run, sync(TOP))["new"] == b"data"


def test_strict_needs_every_directory_on_the_way() -> None:
    run = (Record(Op.MKDIR, "d", ino=20), create("d/f", 10), write(10, b"x"), sync(10), sync(20))
    assert "d" not in durable("strict", *run)
    assert durable("strict", *run, sync(TOP))["d/f"] == b"x"
    assert durable("ext4", *run)["d/f"] == b"x"


@pytest.mark.parametrize("mode", MODES)
def test_a_sync_counts_when_it_returned_with_what_was_there_when_it_began(mode: Mode) -> None:
    begin, end = sync(2)
    assert durable(mode, write(2, b"NEW"), begin)["old"] == b"old"
    assert durable(mode, write(2, b"NEW"), begin, write(2, b"newer"), end)["old"] == b"NEW"


@pytest.mark.parametrize("mode", MODES)
def test_an_older_sync_that_ends_later_takes_nothing_back(mode: Mode) -> None:
    older, newer = sync(2), [record._replace(tid=7) for record in sync(2)]
    run = (write(2, b"one"), older[0], write(2, b"two"), newer[0], newer[1], older[1])
    assert durable(mode, *run)["old"] == b"two"


@pytest.mark.parametrize("mode", MODES)
def test_syncs_that_never_returned_may_count(mode: Mode) -> None:
    model = Model(BASE, mode).replay([write(2, b"NEW"), sync(2)[0]])
    assert model.syncs_in_flight
    model.finish_syncs()
    assert plain(model.durable())["old"] == b"NEW"


def test_fdatasync_commits_the_journal_only_when_the_length_changed() -> None:
    other = create("other", 10)
    assert "other" not in durable("ext4", other, write(2, b"NEW"), sync(2, data_only=True))
    assert "other" in durable("ext4", other, write(2, b"NEW and longer"), sync(2, data_only=True))
    assert "other" in durable("ext4", other, write(2, b"NEW"), sync(2))
    assert durable("ext4", other, write(2, b"NEW"), sync(2, data_only=True))["old"] == b"NEW"


def test_fsync_of_a_file_with_nothing_new_commits_nothing() -> None:
    assert "other" not in durable("ext4", create("other", 10), sync(2))


def test_ext4_journals_an_unlink_that_strict_loses() -> None:
    run = (Record(Op.UNLINK, "old"), create("x", 10), sync(10))
    assert "old" not in durable("ext4", *run)
    assert durable("strict", *run)["old"] == b"old"


def test_unlink_without_directory_sync_comes_back() -> None:
    """SQLite's journal mode DELETE with synchronous FULL: the last commit is rolled back by its own
    journal."""
    assert durable("ext4", Record(Op.UNLINK, "old"))["old"] == b"old"
    assert "old" not in durable("ext4", Record(Op.UNLINK, "old"), sync(TOP))


def test_rename_over_takes_the_data_along_on_ext4() -> None:
    run = (create("new", 10), write(10, b"data"), Record(Op.RENAME, "new", "old"), sync(TOP))
    assert durable("ext4", *run)["old"] == b"data"
    assert durable("strict", *run)["old"] == b"", "the name is durable, what it names is not"


def test_rename_to_a_free_name_takes_nothing_along() -> None:
    run = (create("new", 10), write(10, b"data"), Record(Op.RENAME, "new", "fresh"), sync(TOP))
    assert durable("ext4", *run)["fresh"] == b""


def test_replacing_by_truncation_is_written_out_at_close_on_ext4() -> None:
    run = [Record(Op.TRUNCATE, ino=2), write(2, b"new text")]
    commit = [create("x", 10), *sync(10)]
    assert durable("ext4", run, commit)["old"] == b""
    assert durable("ext4", run, Record(Op.CLOSE, ino=2), commit)["old"] == b"new text"
    assert durable("ext4", run, Record(Op.CLOSE, ino=2))["old"] == b"old"
    assert durable("strict", run, Record(Op.CLOSE, ino=2), commit)["old"] == b"old"


def test_a_rename_is_atomic_and_durable_with_the_directory_it_moves_into() -> None:
    run = (Record(Op.RENAME, "old", "dir/moved"),)
    assert durable("strict", *run, sync(TOP)) == {"old": b"old", "dir": None}
    assert durable("strict", *run, sync(3)) == {"dir": None, "dir/moved": b"old"}


def test_a_name_used_again_survives_the_late_commit_of_the_rename_that_freed_it() -> None:
    run = (
        Record(Op.RENAME, "old", "dir/moved"),
        create("old", 10),
        write(10, b"second"),
        sync(10),
        sync(TOP),
    )
    assert durable("strict", *run, sync(3)) == {"old": b"second", "dir": None, "dir/moved": b"old"}


@pytest.mark.parametrize("mode", MODES)
def test_exchange_and_links_and_symlinks(mode: Mode) -> None:
    run = (
        create("new", 10),
        write(10, b"new"),
        sync(10),
        Record(Op.RENAME, "new", "old", flags=Flag.EXCHANGE),
        Record(Op.LINK, "third", ino=2),
        Record(Op.SYMLINK, "fourth", "third", ino=30),
        sync(TOP),
    )
    left = durable(mode, *run)
    assert (left["old"], left["new"], left["third"]) == (b"new", b"old", b"old")
    assert "fourth" in left


def test_a_truncation_is_journaled_on_ext4() -> None:
    run = (Record(Op.TRUNCATE, ino=2, length=1), create("x", 10), sync(10))
    assert durable("ext4", *run)["old"] == b"o"
    assert durable("strict", *run)["old"] == b"old"
    assert durable("strict", *run, sync(2, data_only=True))["old"] == b"o"


def test_a_truncation_does_not_undo_the_write_that_was_synced_after_it() -> None:
    run = (Record(Op.TRUNCATE, ino=2, length=0), write(2, b"longer than before"), sync(2))
    for mode in MODES:
        assert durable(mode, *run)["old"] == b"longer than before"


@pytest.mark.parametrize("mode", MODES)
def test_a_synchronous_write_keeps_itself_and_nothing_else(mode: Mode) -> None:
    run = (write(2, b"a" * PAGE), write(2, b"b" * PAGE, PAGE), write(2, b"c" * PAGE, 2 * PAGE, synced=True))
    assert durable(mode, *run)["old"] == b"old".ljust(2 * PAGE, b"\0") + b"c" * PAGE


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_sync_loses_its_pages_for_good(mode: Mode) -> None:
    failed = (write(2, b"lost"), sync(2, error=errno.EIO))
    assert durable(mode, *failed, sync(2))["old"] == b"old\0", "the length is committed, the page is not"
    assert durable(mode, *failed, write(2, b"again"), sync(2))["old"] == b"again"
    assert plain(Model(BASE, mode).replay(flat(failed)).cached())["old"] == b"lost", "programs still read it"


@pytest.mark.parametrize("mode", MODES)
def test_sync_of_everything(mode: Mode) -> None:
    run = (create("new", 10), write(10, b"data"), Record(Op.UNLINK, "old"))
    everything = [Record(Op.SYNC, flags=Flag.EVERYTHING), Record(Op.SYNC_END, flags=Flag.EVERYTHING)]
    assert durable(mode, *run, everything) == {"dir": None, "new": b"data"}


def test_files_without_a_name_get_one_by_link() -> None:
    run = (create("", 10), write(10, b"data"), sync(10), Record(Op.LINK, "named", ino=10), sync(TOP))
    assert durable("strict", *run)["named"] == b"data"


# ---- properties of random runs ----

NAMES = ("a", "b", "c")


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """A run that a program could have made: names and inodes are consistent."""
    inos = {"old": 2}
    records: list[Record] = []
    for step in range(draw(st.integers(1, 25))):
        choices = ["create"] if len(inos) < len(NAMES) else []
        choices += ["write", "truncate", "rename", "unlink", "sync", "fdatasync", "close"] if inos else []
        kind = draw(st.sampled_from([*choices, "sync-directory"]))
        path = draw(st.sampled_from(sorted(inos))) if inos else ""
        if kind == "create":
            path = draw(st.sampled_from([name for name in NAMES if name not in inos]))
            inos[path] = 100 + step
            records.append(create(path, inos[path]))
        elif kind == "write":
            at, size = draw(st.sampled_from([0, 100, PAGE - 2, PAGE, 2 * PAGE])), draw(st.integers(1, 5000))
            records.append(write(inos[path], bytes([step + 1]) * size, at))
        elif kind == "truncate":
            records.append(Record(Op.TRUNCATE, ino=inos[path], length=draw(st.integers(0, 2 * PAGE))))
        elif kind == "rename":
            target = draw(st.sampled_from(NAMES))
            if target != path:
                records.append(Record(Op.RENAME, path, target))
                inos[target] = inos.pop(path)
        elif kind == "unlink":
            records.append(Record(Op.UNLINK, path))
            del inos[path]
        elif kind == "close":
            records.append(Record(Op.CLOSE, ino=inos[path]))
        else:
            ino = TOP if kind == "sync-directory" else inos[path]
            records += sync(ino, data_only=kind == "fdatasync")
    return records


def naive(records: Iterable[Record]) -> dict[str, bytes | None]:
    """What a program reads back: the records applied to plain byte strings."""
    files = {2: bytearray(b"old")}
    names = {"old": 2}
    for record in records:
        held = files.get(record.ino, bytearray())
        if record.op is Op.CREATE:
            files[record.ino] = bytearray()
            names[record.path1] = record.ino
        elif record.op is Op.WRITE:
            held.extend(bytes(max(0, record.offset - len(held))))
            held[record.offset : record.offset + len(record.data)] = record.data
        elif record.op is Op.TRUNCATE:
            del held[record.length :]
            held.extend(bytes(record.length - len(held)))
        elif record.op is Op.RENAME:
            names[record.path2] = names.pop(record.path1)
        elif record.op is Op.UNLINK:
            del names[record.path1]
    return {"dir": None, **{name: bytes(files[ino]) for name, ino in names.items()}}


@given(runs(), st.sampled_from(MODES))
def test_the_lose_nothing_image_is_what_programs_read(records: list[Record], mode: Mode) -> None:
    assert plain(Model(BASE, mode).replay(records).cached()) == naive(records)


@given(runs(), st.sampled_from(MODES))
def test_kept_images_equal_images_built_anew(records: list[Record], mode: Mode) -> None:
    model = Model(BASE, mode)
    for record in records:
        model.step(record)
        for image in (model.cached(), model.durable()):
            assert image == Image(dict(image.entries)), "an incremental digest went astray"


@given(runs(), st.sampled_from(MODES))
def test_only_a_finished_sync_changes_the_disk(records: list[Record], mode: Mode) -> None:
    model = Model(BASE, mode)
    for record in records:
        before = model.durable()
        model.step(record)
        if record.op is not Op.SYNC_END:
            assert model.durable() == before


@given(runs(), st.sampled_from(MODES))
def test_syncing_everything_loses_nothing(records: list[Record], mode: Mode) -> None:
    """File by file and then the directory: after that, strict or not, the disk is what programs read."""
    model = Model(BASE, mode).replay(records)
    inos = {record.ino for record in records if record.op is Op.CREATE} | {2}
    model.replay(flat([*(sync(ino) for ino in sorted(inos)), sync(TOP)]))
    assert plain(model.durable()) == naive(records)


@given(runs())
def test_strict_never_loses_a_file_synced_with_its_directory(records: list[Record]) -> None:
    model = Model(BASE, "strict").replay([*records, create("kept", 900), write(900, b"kept")])
    model.replay(flat([sync(900), sync(TOP)]))
    for record in records:
        if "kept" not in (record.path1, record.path2):
            model.step(record._replace(ino=record.ino + 1000 if record.ino > TOP else record.ino))
            assert plain(model.durable())["kept"] == b"kept"


@given(runs())
def test_ext4_names_are_those_of_one_moment(records: list[Record]) -> None:
    """The journal is in order: the names on the disk are those that programs saw at some earlier moment."""
    model, seen = Model(BASE, "ext4"), []
    for record in records:
        seen.append({path for path, entry in model.cached().entries.items()})
        model.step(record)
        seen.append(set(model.cached().entries))
        assert set(model.durable().entries) in seen


@given(runs())
def test_ext4_keeps_at_least_the_names_that_strict_keeps_synced(records: list[Record]) -> None:
    """An fsync of the directory has the same effect on names in both modes."""
    run = [*records, create("z", 900), *sync(TOP)]
    ext4, strict = (Model(BASE, mode).replay(run).durable() for mode in MODES)
    assert ext4.entries.keys() == strict.entries.keys()
    assert all(isinstance(entry, Directory | Content) for entry in ext4.entries.values())
