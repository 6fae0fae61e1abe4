"""The terminal: rows that are told apart, notes that are shown, commands that can be pasted."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.steps import EVERYONE, StepTaken
from recollect.verify.judging.verdict import Anomaly, Status, Verdict, WitnessEvents
from recollect.verify.matrix.document import document
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.rates import Repeated
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.report import finding_text, html, junit, terminal
from recollect.verify.report.symbols import size_of
from recollect.verify.running.scenario import Scenario
from tests.report.planned_cells import shrunk


def result(target: str, status: Status, *, fault: str = "kill-engine", **more: object) -> Result:
    scenario = Scenario(target=target, engine="redis", policy="rdb", fault=fault)
    lost = (
        (Anomaly("lost-tail", 1, True, WitnessEvents(), "[bold]one is gone"),) if status == "violated" else ()
    )
    reason = "only 2 operations" if status == "unknown" else None
    verdict = Verdict(status=status, acked=7, anomalies=lost, reason=reason)
    return Result(scenario=scenario, verdict=verdict, **more)  # type: ignore[arg-type]


def shown(*results: Result, folder: str = "runs/x", **more: object) -> str:
    file = io.StringIO()
    terminal.show(Console(file=file, width=200), Results(folder=folder, results=results), **more)  # type: ignore[arg-type]
    return file.getvalue()


def skipped(target: str, fault: str, reason: str, variant: str = "") -> Result:
    scenario = Scenario(target=target, engine="redis", policy="rdb", fault=fault, variant=variant)
    return Result(scenario=scenario, verdict=Verdict(status="skipped", acked=0, reason=reason))


def test_a_fault_that_was_asked_for_and_cannot_run_says_why() -> None:
    cells = (
        result("a:make", "held"),
        skipped("a:make", "latency", "no network"),
        skipped("a:make", "kill-engine", "nobody asked for this one", "bgsave"),
        result("b:make", "held", fault="latency"),
    )
    asked = ("kill-engine", "latency")
    assert "skipped (1 of 2): no network [a:make latency]" in shown(*cells, asked_for=asked)
    assert "nobody asked" not in shown(*cells, asked_for=asked)
    assert "nobody asked" in shown(*cells, asked_for=(*asked, "kill-engine@bgsave"))
    assert "no network" not in shown(*cells)


def test_a_policy_that_the_stores_own_connections_override_is_told() -> None:
    cells = (
        result("a:make", "held", real_policy="aof-always"),
        result("a:make", "held", fault="restart", real_policy="aof-always"),
        result("b:make", "held"),
    )
    told = "rdb did not take: the connections of a:make are aof-always, and are judged as that"
    assert shown(*cells).count(told) == 1
    assert f"{told}." in html.render(Results(results=cells))
    assert "did not take" not in shown(cells[2])


def test_two_factories_of_one_name_have_a_table_each() -> None:
    text = shown(
        result("app.redis:make", "held"), result("app.sql:make", "held"), result("app.sql:other", "held")
    )
    for target in ("app.redis:make", "app.sql:make", "app.sql:other"):
        assert f"\n{target}\n" in f"\n{text}"


def test_a_cell_of_merged_shards_has_its_own_folder_in_its_command() -> None:
    merged = shown(result("a:make", "violated", folder="shard 1/000-a"), folder="")
    assert "recollect replay 'shard 1/000-a'" in merged
    assert "[bold]one is gone" in merged
    assert "recollect replay runs/x/000-a" in shown(result("a:make", "violated", folder="000-a"))


def test_a_documented_loss_without_a_lost_message_says_what_it_was() -> None:
    stale = (Anomaly("stale-read", 2, True, WitnessEvents(), "an old state"),)
    verdict = Verdict(status="documented-loss", acked=1666, anomalies=stale)
    text = shown(msgspec.structs.replace(result("a:make", "held"), verdict=verdict))
    assert "◐ 0/1,666 stale-read" in text


def test_of_several_rounds_the_table_says_what_it_shows() -> None:
    file = io.StringIO()
    once = Results(folder="x", results=(result("a:make", "held"),))
    for rounds in (1, 3):
        repeated = Repeated(rounds=rounds, seeds=(1, rounds), cells=())
        terminal.show(Console(file=file, width=200), msgspec.structs.replace(once, repeated=repeated))
    assert file.getvalue().count("(lost/acknowledged)") == 1
    assert file.getvalue().count("the first round, and later runs that showed something new") == 1


def test_a_writer_that_was_started_again_is_one_at_a_time() -> None:
    [finding] = findings(Results(folder="x", results=(shrunk(),)))
    once = size_of(finding)
    more = tuple(StepTaken(process, "appends m0") for process in range(5, 10))
    restarted = msgspec.structs.replace(finding, steps=more)
    assert "at a time" not in once
    assert size_of(restarted) == once.replace("writers", "writers at a time")
    alone = msgspec.structs.replace(finding.smallest, writers=1, ops_max=1)
    one_by_one = size_of(msgspec.structs.replace(restarted, smallest=alone))
    assert one_by_one.startswith("1 writer at a time, ")
    assert ", 1 operation each;" in one_by_one, "and not one in all, beside the messages of six writers"


def test_writers_that_share_a_process_are_called_callers() -> None:
    lead = shrunk()
    assert lead.smallest_run is not None
    scenario = msgspec.structs.replace(lead.smallest_run.scenario, variant="several-callers")
    small = msgspec.structs.replace(lead.smallest_run, scenario=scenario)
    text = shown(msgspec.structs.replace(lead, smallest_run=small))
    assert re.search(r"caller 0 +caller 1 +process 2", text)
    assert "2 callers, " in text


def test_what_hangs_is_named() -> None:
    assert "note: a read took longer than 15 s [kill-engine]" in shown(
        result("a:make", "unknown", notes=("a read took longer than 15 s",)), verbose=True
    )


def test_without_a_cell_that_ran_there_is_no_empty_table() -> None:
    assert "fault" not in shown(result("a:make", "skipped")).partition("skipped")[0]


@pytest.mark.parametrize(
    ("fault", "require", "code"),
    [
        ("kill-engine", None, 0),
        ("kill-engine", "written", 1),
        ("restart", "written", 1),
        ("power-loss", "written", 0),
        ("power-loss", "fsynced", 1),
        ("fsync-error", "fsynced", 1),
        ("evict", "fsynced", 0),
    ],
)
def test_a_documented_loss_that_a_durable_message_survives_fails_what_is_required(
    fault: str, require: str | None, code: int
) -> None:
    assert exit_code(Results(results=(result("a:make", "documented-loss", fault=fault),)), require) == code


def readme_run(more_steps: int = 10, workload: str = "rewrite") -> Results:
    """What a default run of README's store comes to, on a machine on which everything takes long."""
    faults = (
        "restart kill-app lost-ack kill-app-at-line disk-full clock-back clock-frozen clock-forward cut pause"
    )
    losses = {"power-loss": 3, "slow-fsync": 3, "kill-engine": 3, "fsync-error": 1, "evict": 1, "failover": 1}

    def made(fault: str, policy: str, status: Status, *names: str, **more: object) -> Result:
        scenario = Scenario(
            target="memory:make_store", engine="redis", policy=policy, fault=fault, workload="rewrite"
        )
        told = tuple(Anomaly(name, 3, True, WitnessEvents(), f"{name} happened", True) for name in names)
        verdict = Verdict(status=status, acked=200, lost=20, anomalies=told, **more)  # type: ignore[arg-type]
        return Result(scenario=scenario, verdict=verdict, operations=500, engine_version="7.0.15")

    policies = ("aof-everysec", "aof-always", "rdb")
    found = [made(fault, policies[0], "held") for fault in faults.split()]
    found += [
        made(fault, policy, "documented-loss", "lost-tail", "silent-reset", "stale-read")
        for fault, count in losses.items()
        for policy in policies[:count]
    ]
    found.append(made("wipe-volume", policies[0], "exposed", reason="it is not noticed: " + 60 * "x"))
    found += [made(fault, policies[0], "skipped", reason="budget") for fault in ("latency", "half-open")]
    lead = msgspec.structs.replace(shrunk(), scenario=made("none", policies[0], "held").scenario)
    assert lead.smallest_run is not None
    sentence = 'No fault came between, and yet message m0 of session "session-0" is missing. '
    sentence *= 2 if workload == INTERLEAVINGS else 4
    small = msgspec.structs.replace(
        lead.smallest_run,
        scenario=msgspec.structs.replace(
            lead.smallest_run.scenario, workload=workload, program="s | s", how="threads"
        ),
        anomaly=Anomaly("lost-update", 1, True, WitnessEvents(session="s"), sentence.strip()),
        steps=(
            *lead.smallest_run.steps,
            *(StepTaken(process % 3, "starts saving m1") for process in range(more_steps)),
            StepTaken(EVERYONE, "the engine has 1 message"),
        ),
    )
    lead = msgspec.structs.replace(lead, smallest_run=small)
    return Results(folder="runs/x", elapsed_s=58.1, results=(*found, lead))


@pytest.mark.parametrize("workload", ["rewrite", INTERLEAVINGS])
def test_the_end_of_readmes_run_fits_on_a_screen(workload: str) -> None:
    orders = workload == INTERLEAVINGS
    file = io.StringIO()
    terminal.show(Console(file=file, width=80), readme_run(6 if orders else 10, workload))
    lines = file.getvalue().splitlines()
    assert len(lines) <= 40, "\n".join(lines)
    assert max(len(line.rstrip()) for line in lines[:-1]) <= 80
    assert sum("Finding" in line for line in lines) == 1
    assert any("◐ fsync-error 20/200, evict 20/200, failover 20/200" in line for line in lines)
    assert any("more steps …" in line for line in lines) != orders, "an order is told from its beginning"


def test_what_is_left_out_is_no_step_of_the_engine_s() -> None:
    lead = shrunk()
    assert lead.smallest_run is not None
    gap = StepTaken(EVERYONE, "… 40 more steps …", left_out=40)
    small = msgspec.structs.replace(lead.smallest_run, steps=(gap, *lead.smallest_run.steps))
    results = Results(folder="runs/x", results=(msgspec.structs.replace(lead, smallest_run=small),))
    file = io.StringIO()
    terminal.show(Console(file=file, width=80), results)
    lines = file.getvalue().splitlines()
    [place] = [place for place, line in enumerate(lines) if "40 more steps" in line]
    assert "engine" not in lines[place - 1], "nothing happened to it"
    assert lines[place + 1].split()[0] == "1", "it has no number"


def test_long_steps_in_narrow_columns_are_fewer() -> None:
    lead = shrunk()
    assert lead.smallest_run is not None
    long = "appends m16 (blanks at the end)"
    steps = [StepTaken(number % 3, long, told=number in (7, 9)) for number in range(12)]
    steps.append(StepTaken(EVERYONE, "the engine has 10 messages"))
    small = msgspec.structs.replace(lead.smallest_run, steps=tuple(steps))
    file = io.StringIO()
    results = Results(folder="runs/x", results=(msgspec.structs.replace(lead, smallest_run=small),))
    terminal.show(Console(file=file, width=80), results)
    lines = file.getvalue().splitlines()
    (first,) = (place for place, line in enumerate(lines) if "process 0" in line)
    (after,) = (place for place, line in enumerate(lines) if "2 writers" in line)
    assert 8 < after - first <= terminal.STEP_LINES_MAX


def test_in_a_text_what_is_left_out_has_no_number_either() -> None:
    (finding,) = findings(Results(folder="x", results=(shrunk(),)))
    gap = StepTaken(EVERYONE, "… 40 more steps …", left_out=40)
    finding = msgspec.structs.replace(finding, steps=(finding.steps[0], gap, *finding.steps[1:3]))
    lines = finding_text.told(finding, Results(folder="x", results=(shrunk(),))).splitlines()[3:7]
    assert [line.split()[0] for line in lines] == ["1.", "…", "2.", "3."]


@pytest.mark.parametrize("width", [40, 80])
def test_steps_below_each_other_have_no_line_for_names(width: int) -> None:
    file = io.StringIO()
    terminal.show(Console(file=file, width=width), Results(folder="runs/x", results=(shrunk(),)))
    blank = [not line.strip() for line in file.getvalue().splitlines()]
    assert sum(blank) == 2, "one before the finding, and one before its steps"


def test_under_verbose_no_step_and_no_row_is_left_out() -> None:
    file = io.StringIO()
    terminal.show(Console(file=file, width=80), readme_run(), verbose=True)
    text = file.getvalue()
    assert "more steps …" not in text
    assert text.count("starts saving m1") == 10
    assert re.search(r"^  evict +◐ 20/200", text, re.MULTILINE)


def test_a_row_with_anything_else_than_a_documented_loss_stays_in_the_table() -> None:
    rows = [result("a:make", status, fault="evict") for status in ("documented-loss", "unknown")]
    other = msgspec.structs.replace(rows[0].scenario, policy="aof-always", fault="restart")
    text = shown(*rows, Result(scenario=other, verdict=Verdict(status="violated", acked=3)))
    assert "  evict" in text
    assert "◐ evict" not in text


def test_a_cell_whose_target_did_not_open_is_not_counted_as_one_that_ran() -> None:
    unopened = Verdict(status="unknown", reason="it did not open")
    never = msgspec.structs.replace(result("a:make", "unknown", fault="cut"), verdict=unopened)
    text = shown(result("a:make", "held", operations=5), result("a:make", "unknown", operations=2), never)
    assert "2 of 3 cells ran, 7 operations" in text
    assert "2 unknown, 1 held" in text


def test_the_figures_of_what_was_left_out_add_up() -> None:
    """In the terminal, on the page and in the document: one figure for what was skipped, and its parts."""
    reasons = [*["budget"] * 2, "no such fault here", "interrupted"]
    verdicts = [Verdict(status="skipped", reason=reason) for reason in reasons]
    cells = [msgspec.structs.replace(result("a:make", "skipped"), verdict=verdict) for verdict in verdicts]
    results = Results(results=(result("a:make", "held"), *cells))
    text = shown(*results.results)
    assert "held, 4 skipped" in text
    assert re.findall(r"skipped \((.*)\): (\w+) ", text) == [("2 of 4", "budget"), ("1 of 4", "interrupted")]
    assert "skipped (1 of 4): `recollect report runs/x -v` says why" in text
    assert "1 of 5 cells ran" in text
    every = re.findall(r"skipped \((\d) of 4\)", shown(*results.results, verbose=True))
    assert sum(map(int, every)) == 4
    page = html.render(results)
    assert "Not run: 4<" in page
    assert re.findall(r"<b>(\d: \w+)", page) == ["2: budget", "1: no", "1: interrupted"]
    assert document(results)["counts"] == {"skipped": 4, "held": 1} == results.counts


def test_two_versions_of_an_engine_are_told_apart() -> None:
    def on(engine: str, status: Status) -> Result:
        there = result("a:make", status)
        scenario = msgspec.structs.replace(there.scenario, engine=engine)
        return msgspec.structs.replace(there, scenario=scenario, engine_version=engine.partition("@")[2])

    results = Results(results=(on("redis@6.2", "held"), on("redis@7", "violated")))
    assert re.search(
        r"redis@6.2 +redis@7\n +fault +rdb +rdb *\n +kill-engine +✓ 7 +✗ ", shown(*results.results)
    )
    assert "seen in 1 cell: redis@7 rdb kill-engine append" in shown(*results.results)
    assert document(results)["findings"][0]["cells"] == ["a:make redis@7 rdb kill-engine append"]
    names = re.findall(r'classname="([^"]*)"', junit.render(results))
    assert names == ["a:make.redis@6.2.rdb", "a:make.redis@7.rdb"]
    assert re.findall(r'classname="([^"]*)"', junit.render(Results(results=results.results[:1]))) == [
        "a:make.redis.rdb"
    ]
    columns, rows = html._matrix(results, {})
    assert [column.policy for column in columns] == ["redis@6.2 rdb", "redis@7 rdb"]
    assert [box and box.status for box in rows[0].boxes] == ["held", "violated"]
