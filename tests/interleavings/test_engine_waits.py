"""When a step is over, and whom the engine picked."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from recollect.verify.explore.interleavings.dialogues import Dialogue, PgDialogue, RespDialogue, SentRequest
from recollect.verify.explore.interleavings.engine_waits import InEngine, all_stand, pick, settle
from recollect.verify.explore.interleavings.footprints import NOTHING, WRITES_ALL, of_sql
from recollect.verify.explore.interleavings.gate import GatedLink
from recollect.verify.explore.interleavings.search import (
    Attempts,
    ByPreemptions,
    Choice,
    Diverged,
    PickedOtherwise,
    Replay,
    Strategy,
    replayed,
)
from recollect.verify.explore.interleavings.source_sets import SourceSets
from recollect.verify.explore.interleavings.world import ChosenCourse

REFUSED = b"E" + (31).to_bytes(4, "big") + b"SERROR\0C40P01\0Mdeadlock\0\0\0\0\0"
GET = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"


@pytest.mark.parametrize(
    ("blockers", "stands"),
    [
        ({"1": ["9"]}, True),
        ({"1": ["9"], "2": ["1"]}, True),
        ({"1": ["2"], "2": ["9", "3"], "3": ["2"]}, True),
        ({"1": []}, False),
        ({"1": ["2"], "2": []}, False),
        ({"1": ["2"], "2": ["1"]}, False),
        ({"1": ["9"], "2": ["3"], "3": ["2"]}, False),
    ],
)
def test_who_stands_waits_for_somebody_outside(blockers: dict[str, list[str]], stands: bool) -> None:
    """A circle does not stand, nor does whoever waits for one that runs: the engine will move them by itself."""
    assert all_stand(blockers) is stands


@dataclass
class Waiting:
    """A connection whose request the engine has."""

    error: str = ""
    in_engine: bool = False
    sent: int = 100
    dialogue: Dialogue = field(default_factory=PgDialogue)
    request: SentRequest | None = None

    def __post_init__(self) -> None:
        self.dialogue.error = self.error

    def fileno(self) -> int:
        return -1

    def hear(self) -> bool:
        return False


def test_the_pick_names_those_who_had_a_rival() -> None:
    b, c, newest = Waiting(), Waiting(), Waiting()
    both: list[tuple[str, InEngine]] = [("B", b), ("C", c)]
    assert pick(both, [("C", c), ("A", newest)]) == "C"
    assert pick(both, [("A", newest)]) == "", "nobody of those who waited goes on"
    assert pick([("B", b)], [("B", b), ("A", newest)]) == "", "only one waited"


def test_the_pick_names_those_who_were_refused_last() -> None:
    b, c = Waiting("23505"), Waiting()
    assert pick([("B", b), ("C", c)], [("B", b), ("C", c)]) == "CB"
    victim = Waiting("40P01")
    assert pick([("B", c)], [("A", victim), ("B", c)]) == "BA", "who is refused to end a circle is a pick too"


def test_the_code_of_a_refusal_is_read() -> None:
    dialogue = PgDialogue()
    dialogue.reply(REFUSED)
    assert dialogue.error == "40P01"
    dialogue.request(b"Q\0\0\0\x0dSELECT 1\0")
    assert dialogue.error == ""


# ---- settling


class Engine:
    """Answers one connection each time it is asked who waits, and says that all wait once nobody is left to answer."""

    def __init__(self, *answers: socket.socket) -> None:
        self.answers = list(answers)
        self.asked = 0

    def all_wait(self, asked: Sequence[InEngine]) -> bool:
        self.asked += 1
        if not self.answers:
            return True
        self.answers.pop(0).sendall(b"+OK\r\n")
        return False


@pytest.fixture
def links() -> Iterator[list[tuple[GatedLink, socket.socket]]]:
    made, sockets = [], []
    for _ in range(3):
        ours, engine = socket.socketpair()
        client, application = socket.socketpair()
        sockets += [ours, engine, client, application]
        link = GatedLink(client, ours, RespDialogue())
        link.out += GET
        link.send()
        made.append((link, engine))
    yield made
    for one in sockets:
        one.close()


def test_a_step_is_over_when_the_last_that_can_be_answered_is(
    links: list[tuple[GatedLink, socket.socket]],
) -> None:
    """B is answered, which lets C go on a moment later: both belong to the step. A still waits."""
    (a, _), (b, for_b), (c, for_c) = links
    engine = Engine(for_b, for_c)
    assert settle([a, b, c], engine) == [b, c]
    assert (a.in_engine, b.in_engine, c.in_engine) == (True, False, False)
    assert bytes(c.answer) == b"+OK\r\n"


def test_nobody_is_asked_who_waits_when_all_is_answered(
    links: list[tuple[GatedLink, socket.socket]],
) -> None:
    engine = Engine()
    for _, sock in links:
        sock.sendall(b"+OK\r\n")
    assert len(settle([link for link, _ in links], engine)) == 3
    assert engine.asked == 0


@pytest.mark.parametrize(
    ("sql", "in_transaction", "releases"),
    [
        ("INSERT INTO t VALUES (1)", True, False),
        ("INSERT INTO t VALUES (1)", False, True),
        ("SELECT 1 FROM t", True, False),
        ("SELECT pg_advisory_unlock(1)", True, True),
        ("COMMIT", True, True),
        ("ROLLBACK TO SAVEPOINT s", True, True),
    ],
)
def test_whoever_waited_is_looked_after_only_if_the_newest_can_release_somebody(
    links: list[tuple[GatedLink, socket.socket]], sql: str, in_transaction: bool, releases: bool
) -> None:
    (a, _), (b, for_b), _ = links
    b.request = SentRequest(sql, of_sql(sql, in_transaction=in_transaction))
    engine = Engine()
    for_b.sendall(b"+OK\r\n")
    assert settle([a, b], engine, newest=b) == [b]
    assert engine.asked == releases


@pytest.mark.parametrize(("cancels", "answered"), [(None, "b"), (7, "ba"), (8, "b")])
def test_a_request_that_the_engine_is_to_give_up_does_not_wait_any_more(
    links: list[tuple[GatedLink, socket.socket]], cancels: int | None, answered: str
) -> None:
    """It seems to wait until the engine has come to giving it up."""
    (a, for_a), (b, for_b), _ = links
    a.dialogue.backend = 7
    b.request = SentRequest("startup", NOTHING, setup=True, cancels=cancels)
    for_b.sendall(b"+OK\r\n")

    class SeemsToWait(Engine):
        def all_wait(self, asked: Sequence[InEngine]) -> bool:
            self.asked += 1
            if self.asked == 3:
                for_a.sendall(b"+OK\r\n")
            return True

    found = settle([a, b], SeemsToWait(), 0.2, newest=b)
    assert found == [{"a": a, "b": b}[name] for name in answered]


# ---- the pick in a schedule

ONLY = [Choice("A", "A", "A:0")]
AFTER = [Choice("B", "B", "B:1"), Choice("C", "C", "C:1")]


def run(strategy: Strategy, who: str) -> str:
    """One run: a step in which the engine picks `who`, and then two in either order."""
    course = ChosenCourse(strategy, str)
    course.choose(ONLY)
    course.picked(who)
    course.did(NOTHING)
    index = course.choose(AFTER)
    course.did(WRITES_ALL)
    course.choose(AFTER[1 - index : 2 - index])
    course.did(WRITES_ALL)
    return "".join(course.codes)


def test_the_pick_is_part_of_the_string() -> None:
    strategy = Replay("")
    assert strategy.start()
    assert run(strategy, "CB") == ">cbB"


@pytest.mark.parametrize("make", [lambda: ByPreemptions(2), SourceSets])
@pytest.mark.parametrize("other", ["C", ""])
def test_a_run_with_another_pick_is_not_the_same_run(make: type[SourceSets], other: str) -> None:
    strategy = make()
    assert strategy.start()
    first = run(strategy, "B")
    assert strategy.start()
    with pytest.raises(PickedOtherwise):
        run(strategy, other)
    strategy.again()
    assert strategy.start()
    assert run(strategy, "B") not in (first, "")


def test_a_replay_wants_the_same_pick() -> None:
    for string, who, fits in (
        (">bB", "B", True),
        (">bB", "C", False),
        (">bB", "", False),
        ("B", "C", True),
    ):
        strategy = Replay(string)
        assert strategy.start()
        if fits:
            run(strategy, who)
        else:
            with pytest.raises(PickedOtherwise):
                run(strategy, who)


def test_a_replay_is_tried_again_until_the_engine_picks_as_it_did() -> None:
    picks = ["C", "CB", "B", "C"]
    assert replayed(">bB", lambda strategy: run(strategy, picks.pop(0))) == ">bB"
    assert picks == ["C"]
    with pytest.raises(PickedOtherwise):
        replayed(">bB", lambda strategy: run(strategy, "C"))


def test_what_went_differently_is_tried_less_often_than_what_the_engine_picked() -> None:
    attempts = Attempts()
    allowed = [attempts.allows(Diverged()) for _ in range(5)]
    attempts.begin()
    assert allowed == [True, True, True, False, False]
    assert all(attempts.allows(PickedOtherwise()) for _ in range(5))
