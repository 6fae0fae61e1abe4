"""One bug, one finding: which cells belong together, and how a finding is told."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from recollect.verify.judging.steps import StepTaken
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.document import document
from recollect.verify.matrix.findings import findings, renumbered
from recollect.verify.matrix.results import Result, Results, SmallestRun
from recollect.verify.report import html, terminal
from recollect.verify.running.scenario import Scenario
from tests.report.planned_cells import anomaly, cell, shrunk


def told(*cells: Result) -> list[tuple[str, tuple[int, ...]]]:
    found = findings(Results(results=cells))
    assert [finding.number for finding in found] == list(range(1, len(found) + 1))
    return [(finding.name, finding.cells) for finding in found]


def test_a_bug_that_needs_no_fault_is_the_same_in_every_cell_that_shows_it() -> None:
    writers = cell("none", "lost-update", "stale-read", workload="rewrite")
    assert told(
        writers,
        cell("kill-engine", "lost-update", "lost-tail"),
        cell("cut", "stale-read"),
        cell("pause", status="held"),
    ) == [("lost-update", (0, 1, 2))]


def test_a_cell_that_avoids_the_first_bug_shows_the_second() -> None:
    writers = cell("none", "lost-update", workload="rewrite")
    assert told(writers, cell("lost-ack", "duplicate", apart=True), cell("cut", "duplicate", apart=True)) == [
        ("lost-update", (0,)),
        ("duplicate", (1, 2)),
    ]


def test_a_bug_of_one_writer_has_other_names_under_a_fault() -> None:
    alone = cell("none", "hole", variant="one-writer", workload="turns")
    assert told(alone, cell("kill-engine", "lost-tail"), cell("restart", "silent-reset")) == [
        ("hole", (0, 1, 2))
    ]
    assert told(alone, cell("kill-engine", "lost-tail"), cell("lost-ack", "duplicate")) == [
        ("hole", (0, 1)),
        ("duplicate", (2,)),
    ]


def test_cells_that_need_a_fault_belong_together_by_name() -> None:
    first, second, third = (
        cell("kill-engine", "lost-tail"),
        cell("restart", "lost-tail", "hole"),
        cell("power-loss", "hole"),
    )
    assert told(first, second, third) == [("lost-tail", (0, 1, 2))]
    assert told(first, cell("clock-back", "reorder")) == [("lost-tail", (0,)), ("reorder", (1,))]


def test_what_a_promise_covers_is_no_finding() -> None:
    verdict = Verdict(
        status="violated", anomalies=(anomaly("silent-reset", covered=True), anomaly("reorder"))
    )
    broken = Result(scenario=cell("restart").scenario, verdict=verdict)
    assert told(broken, cell("kill-engine", "lost-tail", status="documented-loss")) == [("reorder", (0,))]


def order(name: str, *, writers: int = 2) -> Result:
    """What an order of events shows, as `recollect verify` finds it first."""
    first = cell(
        "none", name, workload="interleavings", how="tasks", program="a | a", writers=writers, ops_max=1
    )
    small = SmallestRun(
        scenario=first.scenario,
        anomaly=first.verdict.anomalies[0],
        steps=(StepTaken(0, "append m0"), StepTaken(1, "append m1")),
        folder="order",
    )
    return msgspec.structs.replace(
        first, reproduced=(3, 3), smallest_run=small, shrunk="found at schedule 4", folder="order"
    )


def test_a_race_that_an_order_of_events_shows_is_the_one_that_several_writers_show() -> None:
    writers = cell("none", "dropped", workload="turns")
    assert told(order("lost-update"), writers) == [("lost-update", (0, 1))]
    assert told(order("lost-update"), cell("none", "reorder", workload="turns")) == [
        ("lost-update", (0,)),
        ("reorder", (1,)),
    ]


def test_what_several_writers_lose_is_one_bug_whether_or_not_another_s_write_is_seen_meanwhile() -> None:
    processes = cell("none", "lost-update", variant="several-writers", workload="turns")
    callers = cell("none", "dropped", variant="several-callers", workload="turns")
    assert told(processes, callers) == [("lost-update", (0, 1))]
    alone = cell("none", "dropped", variant="one-writer", workload="turns", writers=1)
    assert len(told(processes, alone)) == 2
    content = cell("none", "dropped", variant="several-writers", workload="contents")
    assert len(told(processes, content)) == 2
    copied = cell("none", "duplicate", variant="several-callers", workload="turns")
    assert len(told(processes, copied)) == 2


def test_what_one_writer_shows_is_no_race() -> None:
    alone = cell("none", "trimmed", variant="one-writer", workload="turns")
    assert told(order("lost-update"), alone) == [("lost-update", (0,)), ("trimmed", (1,))]
    same = cell("none", "lost-update", variant="one-writer", workload="turns")
    assert told(order("lost-update"), same) == [("lost-update", (1, 0))], "one writer alone tells it better"


def test_one_task_of_an_order_that_fails_says_nothing_of_several_writers() -> None:
    assert len(told(order("torn-turn", writers=1), cell("none", "dropped", workload="turns"))) == 2


def test_an_order_of_events_is_told_in_columns_for_its_tasks() -> None:
    lines = printed(order("lost-update"))
    assert any("task A" in line and "task B" in line for line in lines)
    assert "  2 tasks of one process: a | a; found at schedule 4" in lines
    assert lines[-1] == "  recollect replay runs/x/order"
    (finding,) = document(Results(results=(order("lost-update"),)))["findings"]
    assert (finding["smallest"]["how"], finding["smallest"]["program"]) == ("tasks", "a | a")


def test_two_stores_do_not_share_a_finding() -> None:
    other = cell("none", "lost-update")
    other = Result(
        scenario=Scenario(target="b:make", engine="redis", policy="rdb", fault="none"), verdict=other.verdict
    )
    assert [cells for _, cells in told(cell("none", "lost-update"), other)] == [(0,), (1,)]


def test_a_finding_is_told_from_its_smallest_run() -> None:
    document_ = document(Results(folder="runs/x", results=(shrunk(), cell("cut", "lost-update"))))
    (finding,) = document_["findings"]
    assert finding["sentence"] == "m1 went over m0"
    assert finding["confirmed"] == "3 of 3"
    assert finding["replay"] == "recollect replay runs/x/small"
    assert finding["cells"] == ["app:make rdb none rewrite", "app:make rdb cut append"]
    assert finding["smallest"]["operations"] == 2
    assert [step["text"] for step in finding["smallest"]["steps"]][-1] == "reads: m1"
    assert [cell["finding"] for cell in document_["cells"]] == [1, 1]


def printed(*results: Result, width: int = 80, verbose: bool = False) -> list[str]:
    return printed_of(Results(folder="runs/x", results=results), width=width, verbose=verbose)


def printed_of(results: Results, *, width: int = 80, verbose: bool = False) -> list[str]:
    file = io.StringIO()
    terminal.show(Console(file=file, width=width), results, verbose=verbose)
    return [line.rstrip() for line in file.getvalue().splitlines()]


FAULTS = (
    "kill-engine",
    "restart",
    "power-loss",
    "kill-app",
    "lost-ack",
    "cut",
    "half-open",
    "pause",
    "evict",
)


def test_the_terminal_ends_with_the_most_important_finding_in_one_screen() -> None:
    held = [cell(fault, status="held", apart=True) for fault in FAULTS]
    lines = printed(shrunk(), *held, cell("latency", "duplicate", apart=True))
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  recollect replay runs/x/small"
    titles = [line for line in lines if "Finding" in line]
    assert titles == [
        "✗ Finding 2: duplicate (silent), not run again",
        "✗ Finding 1: lost-update (silent), confirmed 3 of 3",
    ]
    heads = next(line for line in lines if "process 0" in line)
    saved = next(line for line in lines if "saves m1" in line)
    assert saved.index("saves m1") == heads.index("process 1"), "each process has its column"
    assert "2 writers, 1 session, 2 operations each; nothing smaller shows it" in "\n".join(lines)
    assert any("held, 81 messages: kill-engine, restart" in line for line in lines)


def test_verbose_has_every_cell_s_own_words() -> None:
    quiet, loud = (
        printed(shrunk(), cell("cut", "lost-update")),
        printed(shrunk(), cell("cut", "lost-update"), verbose=True),
    )
    assert "✗ app:make rdb cut append" not in quiet
    assert "✗ app:make rdb cut append" in loud


def test_too_many_processes_for_columns_are_told_one_below_the_other() -> None:
    lines = printed(shrunk(), width=40)
    assert any("process 1 saves m1" in line for line in lines)


def test_a_hidden_cell_names_the_finding_by_its_number_in_the_end() -> None:
    hidden = Result(
        scenario=cell("concurrent-writers").scenario,
        verdict=Verdict(status="skipped", reason="hidden by finding 7"),
        hidden_by="none-rewrite",
    )
    results = renumbered(Results(results=(cell("none", "lost-update", workload="rewrite"), hidden)))
    assert results.results[1].verdict.reason == "hidden by finding 1"
    (finding,) = findings(results)
    assert finding.hides == (1,)
    assert any("hides rdb concurrent-writers append" in line for line in printed(*results.results, width=200))


# ---- two bugs of one name


ALONE = cell("none", status="held", variant="one-writer", workload="turns")
IN_CONTENTS = cell("none", "duplicate", variant="one-writer", workload="contents")


def test_what_takes_a_certain_content_does_not_explain_a_fault_without_it() -> None:
    retried = cell("lost-ack", "duplicate", workload="turns")
    assert told(ALONE, IN_CONTENTS, retried) == [("duplicate", (1,)), ("duplicate", (2,))]
    same_content = cell("lost-ack", "duplicate", workload="contents")
    assert told(ALONE, IN_CONTENTS, same_content) == [("duplicate", (1, 2))]


def test_what_one_writer_with_plain_texts_shows_is_everywhere() -> None:
    plain = cell("none", "duplicate", variant="one-writer", workload="turns")
    assert told(plain, IN_CONTENTS, cell("lost-ack", "duplicate", workload="turns")) == [
        ("duplicate", (0, 1, 2))
    ]


def test_a_race_and_a_content_are_two_bugs_only_if_one_writer_with_plain_texts_was_fine() -> None:
    race = cell("none", "duplicate", variant="several-writers", workload="turns")
    assert told(ALONE, race, IN_CONTENTS) == [("duplicate", (1,)), ("duplicate", (2,))]
    assert told(race, IN_CONTENTS) == [("duplicate", (0, 1))], "it was not tried"
    both = cell("none", "duplicate", variant="several-writers", workload="contents")
    assert told(ALONE, race, both) == [("duplicate", (1, 2))], "it may be the race in both"


@pytest.mark.parametrize("name", ["trimmed", "duplicate"])
def test_what_many_messages_are_enough_for_is_one_bug(name: str) -> None:
    many = cell("none", name, variant="several-writers", workload="turns")
    long = cell("none", name, variant="one-writer", workload="trimmed")
    assert told(ALONE, many, long, cell("kill-engine", name, workload="turns")) == [(name, (1, 2, 3))]


def test_a_clock_that_is_changed_does_not_do_what_a_dead_engine_does() -> None:
    moved, frozen = cell("clock-back", "reorder"), cell("clock-frozen", "reorder")
    killed, cut = cell("kill-engine", "reorder"), cell("cut", "reorder")
    assert told(moved, killed, cut, frozen) == [("reorder", (1, 2)), ("reorder", (0, 3))]


def test_a_race_that_is_kept_away_is_not_what_few_of_the_other_cells_show() -> None:
    race = cell("none", "reorder", variant="several-writers", workload="turns")
    fine = [
        cell(fault, status="held", workload="turns", apart=True)
        for fault in ("restart", "cut", "pause", "latency")
    ]
    moved = cell("clock-back", "reorder", workload="turns", apart=True)
    assert told(ALONE, race, *fine, moved) == [("reorder", (1,)), ("reorder", (6,))]
    assert told(ALONE, race, *fine[:2], moved) == [("reorder", (1, 4))], "too few to tell"
    shown = [cell(one.scenario.fault, "reorder", workload="turns", apart=True) for one in fine]
    assert told(ALONE, race, *shown, moved) == [("reorder", (1, 2, 3, 4, 5, 6))], (
        "keeping apart does not help"
    )


def test_a_race_that_keeping_apart_does_not_avoid_is_one_bug_whatever_a_fault_calls_it() -> None:
    """Writers of one file wait for one lock, whatever their sessions."""
    race = cell("none", "dropped", variant="several-writers", workload="turns")
    shown = [
        cell(fault, "dropped", *more, workload="turns", apart=True)
        for fault, more in (
            ("restart", ()),
            ("cut", ("lost-tail",)),
            ("pause", ()),
            ("clock-back", ("expired-early",)),
        )
    ]
    killed = cell("kill-engine", "lost-tail", workload="turns", apart=True)
    assert told(ALONE, race, *shown, killed) == [("dropped", (1, 2, 3, 4, 5, 6))]
    other = cell("lost-ack", "duplicate", workload="turns", apart=True)
    assert told(ALONE, race, *shown, other) == [("dropped", (1, 2, 3, 4, 5)), ("duplicate", (6,))]
    fine = [cell(one.scenario.fault, status="held", workload="turns", apart=True) for one in shown]
    assert told(ALONE, race, *fine, killed) == [("dropped", (1,)), ("lost-tail", (6,))], "it is kept away"
    assert told(ALONE, race, *shown[:3]) == [("dropped", (1, 2, 4)), ("lost-tail", (3,))], "too few to tell"
    used = cell("none", "dropped", variant="one-writer", workload="contents")
    assert told(ALONE, used, *shown[:1], *shown[2:3], *fine[:2], killed)[-1] == ("lost-tail", (6,)), "no race"


def test_what_a_store_loses_by_itself_is_also_missing_from_reads_beside_a_fault() -> None:
    alone = cell("none", "trimmed", variant="one-writer", workload="turns")
    assert told(
        alone,
        cell("kill-app", "lost-tail", "non-monotonic-read"),
        cell("slow-fsync", "trimmed", "stale-read"),
    ) == [("trimmed", (0, 2, 1))]
    race = cell("none", "lost-update", workload="turns")
    assert told(race, cell("cut", "stale-read", apart=True)) == [("lost-update", (0,)), ("stale-read", (1,))]
    changed = cell("none", "corrupted", variant="one-writer", workload="turns")
    assert told(changed, cell("cut", "stale-read")) == [("corrupted", (0,)), ("stale-read", (1,))]


def test_where_one_writer_alone_is_answered_too_early_the_order_of_arrival_is_no_second_bug() -> None:
    late = cell("none", "stale-read", variant="one-writer", workload="turns")
    [finding] = findings(Results(results=(order("reorder"), late)))
    assert (finding.name, finding.cells, finding.names) == ("stale-read", (1, 0), ("stale-read", "reorder"))
    assert told(order("lost-update"), late) == [("lost-update", (0,)), ("stale-read", (1,))]
    by_several = cell("none", "stale-read", workload="turns")
    assert told(order("reorder"), by_several) == [("reorder", (0,)), ("stale-read", (1,))]
    changed = cell("none", "corrupted", variant="one-writer", workload="turns")
    assert told(order("reorder"), changed) == [("reorder", (0,)), ("corrupted", (1,))]


def test_what_is_nowhere_for_a_moment_is_lost_where_the_process_dies_and_comes_in_another_order() -> None:
    moved = cell("none", "non-monotonic-read", variant="one-writer", workload="turns")
    shown = (
        cell("restart", "reorder"),
        cell("kill-app", "dropped", "stale-read"),
        cell("kill-app-at-line", "lost-tail"),
        cell("clock-frozen", "reorder", "own-write-missing"),
    )
    assert told(moved, *shown) == [("non-monotonic-read", (0, 1, 2, 3, 4))]
    # An engine that dies takes the end of what it has, and no hole out of the middle.
    assert told(moved, cell("power-loss", "hole")) == [("non-monotonic-read", (0, 1))]
    # Neither what the engine loses, nor what a clock puts out of order, comes from it.
    assert told(moved, cell("kill-engine", "lost-tail"), cell("clock-frozen", "reorder")) == [
        ("non-monotonic-read", (0,)),
        ("lost-tail", (1,)),
        ("reorder", (2,)),
    ]
    # Unless reads show old states there: what they lack may have been gone for long, or still be there.
    assert told(moved, cell("kill-engine", "dropped", "lost-tail", "stale-read")) == [
        ("non-monotonic-read", (0, 1))
    ]
    by_several = cell("none", "non-monotonic-read", workload="turns")
    assert told(by_several, cell("kill-app", "lost-tail", apart=True)) == [
        ("non-monotonic-read", (0,)),
        ("lost-tail", (1,)),
    ]


def test_the_title_has_the_engine_that_cells_ran_on_not_the_one_that_an_upgrade_began_with() -> None:
    def titled(*cells: Result) -> str:
        console = Console(file=io.StringIO(), width=80, record=True)
        terminal.show(console, Results(results=cells))
        return console.export_text().splitlines()[0]

    kill = msgspec.structs.replace(cell("kill-engine", status="held"), engine_version="7.0.15")
    up = msgspec.structs.replace(cell("upgrade", status="held"), engine_version="6.2.14")
    assert titled(kill, up) == "app:make on redis 7.0.15"
    assert titled(up) == "app:make on redis 6.2.14"


def test_the_page_numbers_the_steps() -> None:
    page = html.render(Results(results=(shrunk(),)))
    assert re.findall(r'<th scope="row">(\w+)</th>', page)[:5] == ["1", "2", "3", "4", "5"]
