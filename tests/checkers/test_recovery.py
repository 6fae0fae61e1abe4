"""Whether writes succeed again after a fault is healed."""

from __future__ import annotations

import pytest

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.checkers.does_not_recover import FAILED_MIN, OUTAGE_S

from .history_script import Script, written


def failing(script: Script, *, writes: int = FAILED_MIN, seconds: float = OUTAGE_S + 1) -> Script:
    for _ in range(writes):
        script.wait(seconds / writes)
        script.append(1, outcome="unknown")
    return script


def healed(fault: str = "restart", messages: int = 3) -> Script:
    script = written(messages)
    script.inject(fault)
    script.heal(fault)
    return script


def test_no_write_succeeds_after_the_healing() -> None:
    anomaly = failing(healed()).only()
    assert (anomaly.name, anomaly.silent) == ("does-not-recover", False)
    assert (
        "restart was healed at event 9, and none of the 5 writes in the next 4.1 s succeeded"
        in anomaly.sentence
    )


def test_without_a_fault_nothing_was_healed() -> None:
    anomaly = failing(healed("none")).only()
    assert anomaly.name == "does-not-recover"
    assert anomaly.sentence.startswith(
        "Nothing was broken, but from event 9 on none of the 5 writes in 4.1 s"
    )


def says_false(script: Script, *, shown: bool) -> Script:
    """After the healing, all writes return `False`."""
    for _ in range(FAILED_MIN):
        script.wait((OUTAGE_S + 1) / FAILED_MIN)
        script.begin(1)
        script.unknown(1, "NotAcknowledged: it returned False")
    script.read(2, *range(3 + shown * FAILED_MIN))
    return script


@pytest.mark.parametrize(
    ("error", "status"),
    [("InvalidRequestError: in use", "unknown"), ("Conflict: later", "held"), ("ConversationFull", "held")],
)
def test_a_store_that_mostly_raises_although_nothing_was_broken_has_not_held(error: str, status: str) -> None:
    """Unless it raises what it has declared as an answer."""
    script = Script(fault="none", expected_errors=("ConversationFull",))
    script.inject("none")
    script.heal("none")
    for _ in range(3):
        script.append(1)
        for _ in range(2):
            script.begin(3)
            script.unknown(3, error)
    script.read(2, 0, 3, 6)
    verdict = script.verdict()
    assert verdict.status == status
    if status == "unknown":
        assert verdict.reason == (
            "nothing was broken, and 6 of 9 writes raised; the most frequent error: InvalidRequestError: in use"
        )


def test_what_a_store_does_not_take_is_not_judged() -> None:
    script = Script(fault="none")
    script.inject("none")
    script.heal("none")
    for _ in range(3):
        script.append(1)
        for _ in range(2):
            script.begin(3, contents=("blocks with an image",))
            script.unknown(3, "TypeError: text only")
    script.read(2, 0, 3, 6)
    assert script.verdict().status == "held"


def test_writes_that_return_false_do_not_succeed() -> None:
    assert says_false(healed(), shown=False).names() == ["does-not-recover"]


def test_writes_that_return_false_and_are_there_are_neither_an_outage_nor_proof_of_anything() -> None:
    verdict = says_false(healed(), shown=True).verdict()
    assert (verdict.status, verdict.anomalies) == ("unknown", ())
    assert "5 writes returned False, and reads show what they wrote" in (verdict.reason or "")


@pytest.mark.parametrize("fault", ["none", "restart"])
def test_a_store_that_never_acknowledged_a_write_has_nothing_to_come_back_to(fault: str) -> None:
    """Such as one that insists on a replica where there is none: it says so, and nothing is concluded."""
    script = Script()
    failing(script)
    script.inject(fault)
    script.heal(fault)
    verdict = failing(script).verdict()
    assert (verdict.status, verdict.anomalies) == ("unknown", ())


@pytest.mark.parametrize(
    ("writes", "seconds"), [(FAILED_MIN - 1, OUTAGE_S + 1), (FAILED_MIN, OUTAGE_S - 1)], ids=["few", "short"]
)
def test_a_few_failures_or_a_short_time_prove_nothing(writes: int, seconds: float) -> None:
    assert failing(healed(), writes=writes, seconds=seconds).names() == []


def test_one_success_is_enough() -> None:
    script = failing(healed())
    script.append(1)
    assert script.names() == []


def test_an_error_that_is_a_sentence_ends_with_one_full_stop() -> None:
    script = healed()
    for _ in range(FAILED_MIN):
        script.wait(1.0)
        script.begin(1)
        script.fail(1, "TimeoutError: no replica has answered.")
    assert script.only().sentence.endswith("no replica has answered.")
    assert not script.only().sentence.endswith("..")


@pytest.mark.parametrize(("fault", "status"), [("node-kill", "documented-loss"), ("restart", "violated")])
def test_a_store_that_lost_everything_as_documented_may_refuse_what_is_there_instead(
    fault: str, status: str
) -> None:
    """The replica that took over had received nothing, not even what the store knows its data by."""
    script = written(3, engine="redis-sentinel", fault=fault)
    script.inject(fault)
    script.heal(fault)
    failing(script)
    script.read(3)
    verdict = script.verdict()
    assert verdict.status == status
    assert {anomaly.name for anomaly in verdict.anomalies} == {"does-not-recover", "silent-reset"}


def test_where_the_end_is_missing_it_may_have_recovered() -> None:
    verdict = analyze(failing(healed()).history(truncated=True))
    assert (verdict.status, verdict.anomalies) == ("unknown", ())


def test_a_store_that_refuses_as_it_declared_is_not_away() -> None:
    for declared, names in (((), ["does-not-recover"]), (("ConversationFull",), [])):
        script = written(expected_errors=declared)
        script.inject("restart")
        script.heal("restart")
        for _ in range(FAILED_MIN):
            script.wait(1.0)
            script.begin(1)
            script.fail(1, "ConversationFull: start a new one")
        assert script.names() == names
