"""Crash states: what each level adds, that each is kept once and late, and that planted bugs are caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.verify.disk import LEVELS, MODES, Base, Content, Image, Mode, Model, Op, Record, State, states
from recollect.verify.disk.image import PAGE
from recollect.verify.disk.states import zero_tails
from tests.disk.recorded_program import recorded
from tests.disk.test_model import BASE, TOP, create, flat, plain, runs, sync, write

MARK = Record(Op.MARK, "ack 0")


def kinds(found: list[State]) -> set[str]:
    return {state.kind.split(" after ")[0] for state in found}


def test_level_1_is_everything_lost_and_nothing_lost() -> None:
    found = states(BASE, [write(2, b"NEW")], level=1)
    assert [plain(state.image)["old"] for state in found] == [b"old", b"NEW"]


def test_a_state_is_kept_once_where_the_most_was_acknowledged() -> None:
    run = [write(2, b"NEW"), MARK, Record(Op.MARK, "ack 1"), *sync(2), Record(Op.MARK, "ack 2")]
    found = states(BASE, run, level=3)
    assert len({state.image.digest for state in found}) == len(found)
    before = next(state for state in found if plain(state.image)["old"] == b"old")
    assert before.marks == 2, "the power can go after two acknowledgements and before the sync returned"
    after = next(state for state in found if plain(state.image)["old"] == b"NEW")
    assert after.marks == 3


def test_level_2_loses_single_pages() -> None:
    data = b"a" * PAGE + b"b" * PAGE + b"c" * PAGE
    found = {plain(state.image)["old"] for state in states(BASE, [write(2, data)], level=2)}
    assert b"old".ljust(PAGE, b"\0") + data[PAGE:] in found
    assert data[:PAGE] + bytes(PAGE) + data[2 * PAGE :] in found
    assert b"aaa" + bytes(3 * PAGE - 3) in found, "the appended part reads as zeros"


def test_zero_tails_keep_names_and_lengths_only() -> None:
    model = Model(BASE).replay([write(2, b"NEW tail"), create("new", 10), write(10, b"data")])
    left = plain(zero_tails(model))
    assert left["old"] == b"old" + bytes(5)
    assert left["new"] == bytes(4)
    synced = Model(BASE).replay([write(2, b"NEW tail"), *sync(2)])
    assert plain(zero_tails(synced))["old"] == b"NEW tail"


def test_level_2_cuts_the_journal_in_order_on_ext4() -> None:
    run = [create("a", 10), create("b", 11), Record(Op.UNLINK, "old")]
    names = [set(state.image.entries) - {"dir"} for state in states(BASE, run, "ext4", 2)]
    assert {"b"} not in names
    assert {"old", "b"} not in names, "b was created after a: ext4 cannot keep it alone"
    assert {"a", "old"} in names


def test_level_2_loses_any_single_name_in_strict() -> None:
    run = [create("a", 10), create("b", 11), Record(Op.UNLINK, "old")]
    names = [set(state.image.entries) - {"dir"} for state in states(BASE, run, "strict", 2)]
    for kept in ({"a", "b", "old"}, {"b"}, {"a"}):
        assert kept in names


def test_level_3_loses_keeps_and_tears_single_writes() -> None:
    run = [write(2, b"AA"), write(2, b"BB", 1)]
    found = {plain(state.image)["old"] for state in states(BASE, run, level=3)}
    assert {b"old", b"AAd", b"ABB", b"oBB"} <= found
    assert b"Ald" in found, "torn after one byte"


def test_excluded_paths_are_in_no_image() -> None:
    run = [create("m-shm", 10), write(10, b"x")]
    found = states(BASE, run, level=3, exclude=lambda path: path.endswith("-shm"))
    assert len(found) == 1


def test_states_before_the_start_are_left_out() -> None:
    run = [create("a", 10), *sync(10), write(10, b"x")]
    assert all("a" in state.image.entries for state in states(BASE, run, level=1, start=3))


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="level is 4"):
        states(BASE, [], level=4)


@given(runs(), st.sampled_from(MODES))
def test_levels_only_add(records: list[Record], mode: Mode) -> None:
    digests = [{state.image.digest for state in states(BASE, records, mode, level)} for level in LEVELS]
    assert digests[0] <= digests[1] <= digests[2]


@given(runs(), st.sampled_from(MODES))
def test_states_have_true_digests_and_possible_bytes(records: list[Record], mode: Mode) -> None:
    """Every byte of every state was in that file at some time, or is a zero where data never arrived."""
    written = {0, *b"old", *(record.data[0] for record in records if record.data)}
    for state in states(BASE, records, mode, 3):
        assert state.image == Image(dict(state.image.entries))
        for content in plain(state.image).values():
            assert content is None or set(content) <= written


@given(runs(), st.sampled_from(MODES))
def test_dropping_a_write_page_by_page_equals_replaying_without_it(records: list[Record], mode: Mode) -> None:
    """The fast way to leave one write out must give the same bytes as the plain way."""
    only_writes = [record for record in records if record.op is Op.WRITE and record.ino == 2]
    found = {plain(state.image)["old"] for state in states(BASE, only_writes, mode, 3)}
    for skipped in range(len(only_writes)):
        rest = only_writes[:skipped] + only_writes[skipped + 1 :]
        assert plain(Model(BASE, mode).replay(rest).cached())["old"] in found


@given(runs(), st.sampled_from(MODES))
def test_whatever_was_synced_is_in_every_later_state(records: list[Record], mode: Mode) -> None:
    run = [*records, create("kept", 900), write(900, b"kept"), *flat([sync(900), sync(TOP)])]
    later = [write(2, b"later"), create("x", 901), write(901, b"y" * PAGE)]
    for state in states(BASE, [*run, *later], mode, 3, start=len(run)):
        assert plain(state.image)["kept"] == b"kept"


# ---- planted bugs: a store that appends lines to a file, and acknowledges on standard output ----


def first_bad(base: Base, records: list[Record], mode: Mode, level: int) -> State | None:
    """The first state in which an acknowledged message is not in the file `memory`."""
    for state in states(base, records, mode, level):
        entry = state.image.entries.get("memory")
        lines = entry.read().split(b"\n") if isinstance(entry, Content) else []
        if any(b"message %d" % number not in lines for number in range(state.marks)):
            return state
    return None


def program(tmp_path: Path, code: str) -> tuple[Base, list[Record]]:
    """Run a planted store; its `ack()` is a call that the log shows, turned into a mark."""
    (tmp_path / "data").mkdir()
    prelude = "def ack(): os.symlink('ack', 'ack'); os.unlink('ack')\n"
    recorder, records = recorded(tmp_path / "data", prelude + code)
    with recorder:
        marked = [
            Record(Op.MARK, "ack") if record.op is Op.SYMLINK else record
            for record in records
            if not (record.op is Op.UNLINK and record.path1 == "ack")
        ]
        return recorder.base, marked


HONEST = """
fd = write_file("memory", b"")
sync_folder()
for number in range(5):
    os.write(fd, b"message %d\\n" % number)
    os.fsync(fd)
    ack()
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_an_honest_store_holds(tmp_path: Path, mode: Mode, level: int) -> None:
    assert first_bad(*program(tmp_path, HONEST), mode, level) is None


@pytest.mark.parametrize("mode", MODES)
def test_acknowledging_before_the_fsync_is_caught(tmp_path: Path, mode: Mode) -> None:
    hasty = HONEST.replace("    os.fsync(fd)\n    ack()", "    ack()\n    os.fsync(fd)")
    bad = first_bad(*program(tmp_path, hasty), mode, 1)
    assert bad is not None
    assert bad.kind == "all unsynced lost"


def test_forgetting_the_directory_is_caught_in_strict(tmp_path: Path) -> None:
    forgetful = HONEST.replace("sync_folder()\n", "")
    run = program(tmp_path, forgetful)
    assert first_bad(*run, "strict", 1) is not None
    assert first_bad(*run, "ext4", 3) is None, "on ext4 the fsync of a new file commits its name"


REPLACING = """
fd = write_file("memory", b""); os.fsync(fd); sync_folder()
for number in range(3):
    fd = write_file("next", b"".join(b"message %d\\n" % n for n in range(number + 1)))
    os.fsync(fd)
    os.rename("next", "memory")
    sync_folder()
    ack()
"""


@pytest.mark.parametrize("mode", MODES)
def test_replacing_a_file_needs_the_directory_on_ext4_too(tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    assert first_bad(*program(tmp_path / "good", REPLACING), mode, 3) is None
    forgetful = REPLACING.replace("    sync_folder()\n    ack()", "    ack()")
    assert first_bad(*program(tmp_path / "bad", forgetful), mode, 1) is not None
