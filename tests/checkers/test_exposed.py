"""What is exposed and what is violated: who sent the message twice, and could the store have known?"""

import msgspec
import pytest

from recollect import exit_codes
from recollect.verify.judging.op import Element, HistoryHeader
from recollect.verify.judging.verdict import Status, Verdict
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.running.scenario import Scenario

from .history_script import Script

SCENARIO = Scenario(target="t", engine="redis", policy="rdb", fault="restart", workload="turns")


def results(*statuses: Status, trouble: str | None = None) -> Results:
    cells = [Result(scenario=SCENARIO, verdict=Verdict(status=status)) for status in statuses]
    if trouble is not None:
        cells[-1] = msgspec.structs.replace(cells[-1], trouble=trouble)
    return Results(results=tuple(cells))


@pytest.mark.parametrize(
    ("found", "code", "strictly"),
    [
        (results("held", "exposed", "documented-loss"), exit_codes.HELD, exit_codes.VIOLATED),
        (results("held", "unknown"), exit_codes.INCONCLUSIVE, exit_codes.INCONCLUSIVE),
        (results("violated", "unknown"), exit_codes.VIOLATED, exit_codes.VIOLATED),
        (results("skipped"), exit_codes.INCONCLUSIVE, exit_codes.INCONCLUSIVE),
        (results("held", "skipped"), exit_codes.HELD, exit_codes.HELD),
        (results("held", "unknown", trouble="unopened"), exit_codes.USAGE, exit_codes.USAGE),
        (results("violated", "unknown", trouble="unopened"), exit_codes.VIOLATED, exit_codes.VIOLATED),
        (results("violated", "unknown", trouble="internal"), exit_codes.INTERNAL, exit_codes.INTERNAL),
    ],
)
def test_the_worst_decides_the_exit_code(found: Results, code: int, strictly: int) -> None:
    assert exit_code(found) == code
    assert exit_code(found, strict=True) == strictly


def test_a_header_of_an_earlier_release_says_nothing_about_abilities() -> None:
    assert msgspec.json.decode(b'{"recollect": "0.1.0"}', type=HistoryHeader).abilities is None


def copies(abilities: tuple[str, ...], attempts: int, seen: int) -> Script:
    script = Script(abilities=abilities)
    for _ in range(attempts - 1):
        script.append(1, outcome="unknown", first=0)
    script.append(1, first=0)
    script.read(2, *[0] * seen)
    return script


@pytest.mark.parametrize(
    ("abilities", "attempts", "seen", "status"),
    [
        ((), 2, 2, "exposed"),
        ((), 1, 2, "violated"),  # nobody tried again but the store itself
        ((), 2, 3, "violated"),
        (("turn",), 2, 2, "violated"),  # it had a turn id to know the message by
        ((), 2, 1, "held"),
    ],
)
def test_two_copies_are_the_callers_only_if_its_attempts_explain_them(
    abilities: tuple[str, ...], attempts: int, seen: int, status: Status
) -> None:
    assert copies(abilities, attempts, seen).verdict().status == status


@pytest.mark.parametrize("order", [(2, 3), (3, 2), (3, 4)])
def test_one_read_with_a_copy_too_many_is_enough(order: tuple[int, int]) -> None:
    """Sent twice, it may be there twice; the first read with three copies is the one to tell of."""
    script = copies((), 2, order[0])
    script.read(2, *[0] * order[1])
    verdict = script.verdict()
    assert verdict.status == "violated"
    too_many = 5 if order[0] > 2 else 7
    assert f"One read (event {too_many})" in verdict.anomalies[0].sentence


@pytest.mark.parametrize(("unkept", "status"), [(True, "exposed"), (False, "violated")])
def test_a_field_that_the_interface_never_named_is_exposed(unkept: bool, status: Status) -> None:
    script = Script()
    for _ in range(3):
        script.append(1)
    script.read(2, 0, Element(1, 77, text="it came back without its name", unkept=unkept), 2)
    verdict = script.verdict()
    assert (verdict.status, [anomaly.name for anomaly in verdict.anomalies]) == (status, ["corrupted"])
    assert "it came back without its name" in verdict.anomalies[0].sentence


def seen_twice(first: Element, second: Element) -> Verdict:
    script = Script()
    script.append(1)
    script.read(2, first)
    script.read(2, second)
    return script.verdict()


def test_a_message_that_also_came_back_changed_is_violated() -> None:
    unkept, changed = Element(0, 77, text="without its name", unkept=True), Element(0, 77, text="other text")
    for verdict in (seen_twice(unkept, changed), seen_twice(changed, unkept)):
        assert verdict.status == "violated"
        assert "other text" in verdict.anomalies[0].sentence


def test_of_two_that_are_told_alike_the_first_is_told() -> None:
    for unkept in (True, False):
        verdict = seen_twice(
            Element(0, 77, text="one", unkept=unkept), Element(0, 78, text="two", unkept=unkept)
        )
        assert "(one)" in verdict.anomalies[0].sentence


@pytest.mark.parametrize(
    ("element", "end"),
    [
        (Element(0, 77, text="other text"), "with other content, role or metadata (other text)."),
        (Element(0, 77), "with other content, role or metadata."),
        (Element(0, damaged=True, text="half of it"), "marked as damaged."),
    ],
)
def test_what_is_known_of_the_change_is_told(element: Element, end: str) -> None:
    script = Script()
    script.append(1)
    script.read(2, element)
    assert script.only().sentence.endswith(end)


def test_of_several_exposed_reads_the_first_is_told() -> None:
    script = Script(abilities=())
    first = script.append(1, outcome="unknown")
    script.append(1, first=first, outcome="unknown")
    shown = script.read(2, first, first)
    script.append(1, first=first)
    script.read(2, first, first, first)
    assert script.verdict().status == "exposed"
    assert f"One read (event {shown})" in script.only().sentence
