"""What two schedules have in common, and what a world does with a store that has been used."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from recollect.verify.explore.interleavings.dialogues import RespDialogue
from recollect.verify.explore.interleavings.held_connection import HeldConnection
from recollect.verify.explore.interleavings.results import InterleavingsAsked
from recollect.verify.explore.interleavings.schedule_history import ScheduleHistory
from recollect.verify.explore.interleavings.words import explore_interleavings
from recollect.verify.explore.interleavings.world import LoggedStep, ScheduleRun
from recollect.verify.judging.op import HistoryHeader


def course(*labels: str) -> ScheduleRun:
    history = ScheduleHistory(HistoryHeader(recollect="0"), 0)
    return ScheduleRun(history, "", [LoggedStep("A", "arrive", label) for label in labels], 0)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("INSERT INTO sessions VALUES (7, x'742d')", "INSERT INTO sessions VALUES (12, x'752d31')", True),
        ("SELECT id FROM sessions WHERE key = 'a'", "SELECT id FROM sessions WHERE key = 'b'", True),
        ("SELECT id FROM sessions", "SELECT id FROM turns", False),
        ("append m0", "append m1", False),
        ("EVALSHA 12ae05d9c3 turn-1001", "EVALSHA 12ae05d9c3 turn-2001", True),
    ],
)
def test_values_in_statements_make_no_other_course(one: str, other: str, alike: bool) -> None:
    assert course(one).went_like(course(other)) is alike


async def test_a_connection_is_at_rest_once_its_driver_has_read_everything() -> None:
    """What redis-py 4.5.1 left behind after a cancelled call."""
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    with contextlib.closing(theirs):
        reader = asyncio.StreamReader()
        made = HeldConnection(
            ours,
            asyncio.StreamReaderProtocol(reader),
            RespDialogue(),
            number=1,
            loop=loop,
            moment=lambda: 0,
        )
        assert made.is_at_rest
        reader.feed_data(b"+OK\r\n")
        assert not made.is_at_rest
        await reader.readline()
        assert made.is_at_rest
        made.write(b"*1\r\n$4\r\nPING\r\n")
        assert not made.is_at_rest
        made.end()


def test_a_program_finds_no_connection_that_another_one_has_left(tmp_path: Path) -> None:
    """A caller gives up, and the next operation opens a connection: also after two clients have had one each."""

    def steps(programs: str, schedules: str) -> list[tuple[str, str]]:
        asked = InterleavingsAsked(
            target="postgres",
            engine="postgres",
            how="tasks",
            programs=(programs,),
            cancel=True,
            replay=schedules,
            folder=str(tmp_path),
        )
        done = explore_interleavings(asked)
        assert done.found.trouble is None, done.found.trouble
        return [(step.actor, step.kind) for step in done.steps if step.kind != "setup"]

    assert steps("a r; a r | a r; a r", "A!A2;;A!A2") == steps("a r", "A!A2")
