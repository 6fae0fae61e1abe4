"""The picture of a run: what is painted, what is cut, and how many bytes it may take."""

from pathlib import Path

from recollect.verify.judging.course import Course
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import Element, HistoryHeader, WriteAsked
from recollect.verify.report import svg
from recollect.verify.report.timeline import COLUMNS, LANES_MAX, Timeline, draw, of_history
from recollect.verify.running.scenario import Scenario
from tests.report.saved_runs import Clock, save_run

SCENARIO = Scenario(
    target="redis", engine="redis", policy="aof-always", fault="kill-engine", workload="turns"
)


def drawn(folder: Path) -> Timeline:
    timeline = draw(Course(History(folder / "history.jsonl")))
    assert timeline is not None
    return timeline


def test_lost_writes_are_painted_before_the_fault_and_unknown_ones_at_it(tmp_path: Path) -> None:
    result = save_run(tmp_path / "run", SCENARIO, lost=3)
    timeline = drawn(tmp_path / "run")
    assert result.verdict.lost >= 9
    assert timeline.counts["lost"] == 9
    (fault,) = timeline.faults
    assert (fault.name, fault.healed) == ("kill-engine", True)
    lost = [span for lane in timeline.lanes for span in lane.writes if span.kind == "lost"]
    assert lost
    assert all(span.end <= fault.start + 1 for span in lost)
    unknown = [span for lane in timeline.lanes for span in lane.writes if span.kind == "unknown"]
    assert unknown
    assert max(span.end for span in unknown) >= fault.start
    assert timeline.counts["unknown"] == 3


def test_nothing_lost_paints_nothing_as_lost(tmp_path: Path) -> None:
    save_run(tmp_path / "run", SCENARIO)
    timeline = drawn(tmp_path / "run")
    assert timeline.counts["lost"] == 0
    assert not any(span.kind == "lost" for lane in timeline.lanes for span in lane.writes)


def test_dead_time_is_cut_to_the_same_width_however_long(tmp_path: Path) -> None:
    for name, down_s in (("short", 3.0), ("long", 300.0)):
        save_run(tmp_path / name, SCENARIO, down_s=down_s)
    short, long = drawn(tmp_path / "short"), drawn(tmp_path / "long")
    assert [round(cut.length_s) for cut in (*short.cuts, *long.cuts)] == [3, 300]
    assert short.cuts[0].start == long.cuts[0].start
    assert short.cuts[0].end == long.cuts[0].end < COLUMNS * 0.7
    assert len(long.ticks) >= 4
    assert not any(short.cuts[0].start < column < short.cuts[0].end for column, _ in short.ticks)


def test_time_goes_one_way(tmp_path: Path) -> None:
    save_run(tmp_path / "run", SCENARIO)
    timeline = drawn(tmp_path / "run")
    steps = 500
    times = [
        timeline.start_s + (timeline.end_s - timeline.start_s) * step / steps for step in range(steps + 1)
    ]
    columns = [timeline.scale.column(time_s) for time_s in times]
    assert columns == sorted(columns)
    assert (columns[0], columns[-1]) == (0, COLUMNS)


def test_many_sessions_share_a_lane_but_not_those_with_losses(tmp_path: Path) -> None:
    names = tuple(f"session-{number}" for number in range(9))
    save_run(tmp_path / "run", SCENARIO, sessions=names, lost=2, losing=("session-7",))
    timeline = drawn(tmp_path / "run")
    assert len(timeline.lanes) == LANES_MAX
    assert timeline.lanes[-1].name == "6 others"
    losing = [lane.name for lane in timeline.lanes if any(span.kind == "lost" for span in lane.writes)]
    assert losing == ["session-7"]


def test_a_drawing_keeps_its_budget_and_every_lost_lane(tmp_path: Path) -> None:
    save_run(tmp_path / "run", SCENARIO, steps=6000, lost=3)
    timeline = drawn(tmp_path / "run")
    wide = svg.drawing(timeline, "label", None, 100_000)
    tight = svg.drawing(timeline, "label", None, 900)
    assert len(tight) < len(wide)
    assert len(tight) < 900 + 2500
    assert tight.count('class="lost"') == wide.count('class="lost"') == 3


def test_a_folder_without_a_history_has_no_picture(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    assert of_history(history) is None
    history.write_text("not a history\n")
    assert of_history(history) is None


def test_a_lost_write_is_never_painted_over(tmp_path: Path) -> None:
    """Two appends to one session overlap in time: the part they share belongs to the lost one, in either order."""
    for first, name in ((0, "lost-answered-last"), (1, "lost-answered-first")):
        (tmp_path / name).mkdir()
        clock = Clock()
        with (tmp_path / name / "history.jsonl").open("wb") as file:
            writer = HistoryWriter(
                file, HistoryHeader(recollect="0.1.0", fault="kill-engine"), clock=clock, wall=clock
            )
            for process in (0, 1):  # message 0 is kept, message 1 is lost
                writer.invoke_write(process, "s", "append", WriteAsked(process, (process,)))
            clock.now_s += 0.5
            writer.ok(first)
            clock.now_s += 0.5
            writer.ok(1 - first)
            writer.fault_injected("kill-engine")
            writer.fault_healed("kill-engine")
            writer.invoke_read(2, "s")
            writer.ok_read(2, [Element(0, 0)])
            writer.close()
        (lane,) = drawn(tmp_path / name).lanes
        kinds = [span.kind for span in lane.writes]
        assert kinds == (["lost"] if name == "lost-answered-last" else ["lost", "kept"])
        assert (lane.writes[0].start, lane.writes[-1].end) == (0, COLUMNS)
