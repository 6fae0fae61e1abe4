"""Exploration: every state is tried once, judgements are explained, and work that was cut off goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from recollect.verify.disk import MODES, Content, Image, Mode, Op, Record
from recollect.verify.disk.explanation import ACK, explain
from recollect.verify.disk.exploring import (
    HELD,
    ExplorePlan,
    Judgement,
    WorkerFailed,
    explore,
    load_judgements,
    save_judgements,
)
from recollect.verify.disk.recording import Recording, save
from recollect.verify.disk.recovery import never_read
from tests.disk.probes import numbers_check
from tests.disk.recorded_run import Enough, RecordedRun
from tests.disk.test_model import BASE, create, sync, write

RUN = [
    create("memory", 10),
    *(r for n in range(6) for r in (write(10, b"%d" % n, n), Record(Op.MARK, f"{ACK}{n}"), *sync(10))),
]


class LengthCheck:
    """A store whose messages are single bytes of one file; it acknowledges before it syncs."""

    closed = 0

    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        entry = image.entries.get("memory")
        size = entry.size if isinstance(entry, Content) else 0
        return (
            HELD
            if size >= len(marks)
            else Judgement("lost-tail", f"{size} of {len(marks)} (pid {os.getpid()})")
        )

    def close(self) -> None:
        LengthCheck.closed += 1


class SlowCheck(LengthCheck):
    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        time.sleep(0.05)
        return super().check(image, marks)


class BrokenCheck(LengthCheck):
    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        raise RuntimeError("the check itself is wrong")


class DyingCheck(LengthCheck):
    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        os._exit(3)


def test_all_states_are_tried_by_several_processes() -> None:
    seen: list[tuple[int, int]] = []
    found = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 1), progress=lambda *at: seen.append(at))
    assert found.left == 0
    assert seen[-1] == (len(found.states), len(found.states))
    assert found.counts["lost-tail"] > 0
    workers = {judgement.detail.partition("pid ")[2] for _, judgement in found.bad()}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers


def test_the_first_bad_state_is_explained() -> None:
    found = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 1))
    state, _ = next(found.bad())
    told = str(explain(BASE, RUN, state, "ext4"))
    assert told.splitlines() == [
        "Acknowledged last: 0",
        "After that",
        "  fsync of memory begins",
        "  power loss, before fsync of memory returns",
        "Not yet on the disk at that moment",
        "  memory: 1 write of 1 bytes in all, the first at 0, made before the acknowledgement",
        "  create memory: the directory was not synced, made before the acknowledgement",
        "What the power loss left: all unsynced lost",
    ]


def test_a_budget_ends_it_and_it_can_go_on(tmp_path: Path) -> None:
    first = explore(BASE, RUN, SlowCheck, ExplorePlan("ext4", 2, budget_s=0.2))
    assert 0 < len(first.judgements) < len(first.states)
    save_judgements(tmp_path / "findings.jsonl", first.judgements)
    known = load_judgements(tmp_path / "findings.jsonl")
    assert known == first.judgements
    second = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 2), known=known)
    assert second.left == 0
    assert all(second.judgements[digest] == judgement for digest, judgement in known.items())


def test_the_search_for_states_is_inside_the_budget() -> None:
    """It ends between two crash points, at least one of which it has looked at, and goes on from there."""
    whole = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 2))
    seen: set[int] = set()
    start, parts = 0, 0
    while True:
        part = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 2, start=start, states_max=3))
        assert part.left == 0
        seen |= {state.image.digest for state in part.states}
        parts += 1
        if part.reached is None:
            break
        assert start < part.reached <= len(RUN)
        start = part.reached
    assert parts > 2
    assert seen == {state.image.digest for state in whole.states}
    none = explore(BASE, RUN, LengthCheck, ExplorePlan("ext4", 2, budget_s=0.0))
    assert none.reached is not None
    assert none.left == len(none.states) > 0


def test_a_disk_is_judged_again_where_more_was_acknowledged() -> None:
    """The same disk later in the run: what held with one acknowledgement may not hold with two."""
    short, long = RUN[:4], [*RUN[:2], *RUN[2:4], Record(Op.MARK, f"{ACK}1")]
    known: dict[tuple[int, int], Judgement] = {}
    assert explore(BASE, short, LengthCheck, ExplorePlan("ext4", 1), known=known).counts["held"] > 0
    again = explore(BASE, long, LengthCheck, ExplorePlan("ext4", 1), known=known)
    [last] = [state for state in again.states if state.kind == "nothing lost"][-1:]
    assert again.judgements[last.key].anomaly == "lost-tail"


def test_a_check_that_raises_is_not_a_finding() -> None:
    with pytest.raises(WorkerFailed, match="RuntimeError: the check itself is wrong"):
        explore(BASE, RUN, BrokenCheck, ExplorePlan("ext4", 1))


def test_a_worker_that_dies_is_not_a_finding() -> None:
    with pytest.raises(WorkerFailed):
        explore(BASE, RUN, DyingCheck, ExplorePlan("ext4", 1))


# ---- real engines ----


@pytest.fixture
def sqlite_run() -> Iterator[RecordedRun]:
    with RecordedRun("sqlite", "wal-normal", skip_sync=True) as run:
        run.write(Enough(rows=10))
        run.engine.kill()
        yield run


def test_a_saved_recording_gives_the_same_states(sqlite_run: RecordedRun, tmp_path: Path) -> None:
    recording = Recording.of(sqlite_run.recorder)
    save(sqlite_run.recorder, tmp_path / "recording")
    loaded = Recording.load(tmp_path / "recording")
    assert loaded.records == recording.records
    assert loaded.base.image == recording.base.image
    assert loaded.base.inos == recording.base.inos


@pytest.mark.parametrize(
    ("spec", "policy", "rows", "level", "mode"),
    [
        *(("sqlite", "wal-full", 10, 3, mode) for mode in MODES),
        *(("sqlite", "delete-extra", 5, 3, mode) for mode in MODES),
        *(("postgres@18", "default", 3, 1, mode) for mode in MODES),
        ("chroma", "embedded", 1, 1, "strict"),
    ],
)
def test_durable_policies_hold_in_every_state(
    spec: str, policy: str, rows: int, level: int, mode: Mode
) -> None:
    with RecordedRun(spec, policy, skip_sync=True) as run:
        began = run.recorder.count
        run.write(Enough(rows=rows))
        run.engine.kill()
        records = run.records()
    plan = ExplorePlan(mode, level, start=began, exclude=never_read(spec))
    found = explore(run.recorder.base, records, numbers_check(spec, policy), plan)
    assert found.left == 0
    assert set(found.counts) == {"held"}, [(str(state), judgement) for state, judgement in found.bad()][:3]
    assert len(found.states) > 5


def test_a_policy_that_loses_is_caught(sqlite_run: RecordedRun) -> None:
    plan = ExplorePlan("ext4", 1, exclude=never_read("sqlite"))
    records = sqlite_run.records()
    found = explore(sqlite_run.recorder.base, records, numbers_check("sqlite", "wal-normal"), plan)
    state, judgement = next(found.bad())
    assert judgement.anomaly == "lost-tail"
    assert "memory.db-wal" in str(explain(sqlite_run.recorder.base, records, state, "ext4"))


def test_redis_always_loses_nothing_and_refuses_loudly() -> None:
    """Where its log ends in zeros or is torn in the middle it refuses to start; it never comes up with less."""
    with RecordedRun("redis", "aof-always", skip_sync=True) as run:
        run.write(Enough(rows=8))
        run.engine.kill()
        records = run.records()
    found = explore(run.recorder.base, records, numbers_check("redis", "aof-always"), ExplorePlan("ext4", 3))
    assert found.left == 0
    assert set(found.counts) == {"held", "refuses-to-start"}
    assert all(
        "Bad file format" in judgement.detail or "damaged" in judgement.detail for _, judgement in found.bad()
    )
