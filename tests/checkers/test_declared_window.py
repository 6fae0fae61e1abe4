"""A target that says how many messages it keeps is judged by that: no more is expected, and no less."""

from __future__ import annotations

import pytest

from .history_script import Script, written


def kept(keeps_last: int, *shown: int, other: bool = False) -> Script:
    """Four messages, of which a read shows these; `other` puts the third into another session."""
    script = Script(keeps_last=keeps_last)
    for message in range(4):
        script.append(1, "other" if other and message == 2 else "s")
        script.read(2, *(number for number in range(message + 1) if not other or number != 2))
    script.read(2, *shown)
    return script


def test_what_is_older_than_the_window_may_be_gone() -> None:
    assert kept(2, 2, 3).names() == []


def test_a_message_inside_the_window_is_missed() -> None:
    assert kept(3, 2, 3).names() == ["trimmed"]
    assert kept(3, 2, 3).only().first.message == "m1"


def test_what_the_engine_still_has_of_what_is_older_is_not_hidden() -> None:
    """Everything is kept, and the last two are given: so it says."""
    script = kept(2, 2, 3)
    script.count(2, rows=4)
    assert script.names() == []


def test_what_the_engine_still_has_inside_the_window_is_hidden() -> None:
    script = kept(3, 2, 3)
    script.count(2, rows=4)
    assert script.firsts() == {"hidden": "m1"}


def test_a_full_window_hides_nothing_of_what_the_engine_has_lost() -> None:
    script = Script(policy="aof-everysec", fault="power-loss", keeps_last=3)
    for message in range(12):
        script.append(1)
        script.read(2, *range(max(0, message - 2), message + 1))
    script.crash("power-loss")
    script.read(2, 8, 9, 10)
    script.append(1)
    script.read(2, 9, 10, 12)
    script.count(2, rows=12)
    assert script.names() == ["lost-tail"]


def test_another_session_takes_no_room() -> None:
    assert kept(2, 3, other=True).names() == ["trimmed"]
    assert kept(1, 3, other=True).names() == []


def test_later_messages_of_the_same_turn_take_room() -> None:
    def turn(keeps_last: int) -> list[str]:
        script = Script(keeps_last=keeps_last)
        script.append(1, count=3)
        script.read(2, 1, 2)
        return script.names()

    assert turn(2) == []
    assert turn(3) != []


@pytest.mark.parametrize(("outcome", "names"), [("unknown", []), ("ok", []), ("fail", ["trimmed"])])
def test_what_may_have_been_written_takes_room(outcome: str, names: list[str]) -> None:
    script = Script(keeps_last=2)
    script.append(1)
    script.append(1)
    script.read(2, 0, 1)
    third = script.append(3, outcome=outcome)
    script.read(2, 1, *([third] if outcome == "ok" else []))
    assert script.names() == names


def test_a_failed_write_that_is_there_anyway_takes_room() -> None:
    script = Script(keeps_last=2)
    script.append(1)
    script.append(1)
    script.append(3, outcome="fail")
    script.read(2, 1, 2)
    assert "trimmed" not in script.names()
    assert "dropped" not in script.names()


def test_what_is_written_after_the_read_takes_no_room() -> None:
    script = Script(keeps_last=2)
    script.append(1)
    script.append(1)
    script.read(2, 0, 1)
    script.read(2, 1)
    script.append(1)
    script.read(2, 1, 2)
    assert script.names() == ["trimmed"]


def test_a_write_that_was_over_before_takes_no_room() -> None:
    """Three are kept, and two were written after the second: the first, which is older, says nothing about it."""
    script = Script(keeps_last=3)
    for _ in range(4):
        script.append(1)
    script.read(2, 0, 1, 2, 3)
    script.read(2, 0, 2, 3)
    assert script.names() == ["dropped"]


def test_what_left_from_the_middle_was_not_trimmed_though_the_window_has_moved_on_by_the_end() -> None:
    """The read without m2 still has the older m1, which leaves the window later."""
    script = Script(keeps_last=3)
    for _ in range(4):
        script.append(1)
    script.read(2, 1, 2, 3)
    script.read(2, 1, 3)
    script.append(1)
    script.append(1)
    script.read(2, 3, 4, 5)
    assert script.firsts() == {"dropped": "m2"}


@pytest.mark.parametrize(("keeps_last", "names"), [(2, ["lost-tail"]), (None, ["lost-tail", "stale-read"])])
def test_what_is_there_again_because_newer_ones_were_lost_was_not_late(
    keeps_last: int | None, names: list[str]
) -> None:
    script = written(3, policy="aof-everysec", fault="power-loss", keeps_last=keeps_last)
    script.read(2, 1, 2)
    script.crash("power-loss")
    script.restart()
    script.read(2, 0, 1)
    assert sorted(script.names()) == names


@pytest.mark.parametrize(("first", "names"), [("unknown", ["duplicate"]), ("ok", ["dropped"])])
def test_a_write_that_was_tried_again_may_take_the_room_of_two(first: str, names: list[str]) -> None:
    script = Script(keeps_last=2)
    script.append(1)
    again = script.append(1, outcome=first)
    if first == "unknown":
        script.append(1, first=again)
    script.read(2, *([again, again] if first == "unknown" else [again]))
    assert script.names() == names


@pytest.mark.parametrize(("sent", "names"), [(4, ["dropped"]), (5, [])])
def test_one_that_was_sent_often_may_take_the_room_of_as_many(sent: int, names: list[str]) -> None:
    """Every answer but the last was lost, and each time it was stored."""
    script = Script(keeps_last=5)
    script.append(1)
    again = script.append(2, outcome="unknown")
    for attempt in range(2, sent + 1):
        script.append(2, first=again, outcome="ok" if attempt == sent else "unknown")
    script.read(3, again)
    assert script.names() == names


def test_but_not_of_three() -> None:
    script = Script(keeps_last=3)
    script.append(1)
    again = script.append(1, outcome="unknown")
    script.append(1, first=again)
    script.read(2, again)
    assert script.names() == ["dropped"]


@pytest.mark.parametrize(
    ("abilities", "again", "names"),
    [((), True, []), (("turn",), True, ["reorder"]), ((), False, ["reorder"])],
)
def test_of_two_copies_the_window_may_show_the_second_only(
    abilities: tuple[str, ...], again: bool, names: list[str]
) -> None:
    """Sent again to a store without turn ids, it is there twice; the first copy leaves the window, the second stays."""
    script = Script(keeps_last=2, abilities=abilities)
    script.append(1, outcome="unknown" if again else "ok")
    script.append(2)
    script.read(3, 0, 1)
    if again:
        script.append(1, first=0)
    script.read(3, 1, 0)
    assert script.names() == names
