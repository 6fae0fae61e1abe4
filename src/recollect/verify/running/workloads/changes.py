"""Taking single messages back, and replacing all of them: what frameworks do besides appending."""

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    AppendTurn,
    Body,
    Intent,
    Plan,
    Planner,
    ReadBack,
    ReplaceAll,
    TakeBack,
    Workload,
)

LAST = 1.0
"""The place of the latest message: taking it back is a pop."""


def _changes(planner: Planner) -> Plan:
    """Talks, reads, and changes what it read; the next reads show what became of it."""
    size = 2 if "batches" in planner.abilities else 1
    while True:
        session = planner.session()
        for _ in range(planner.rng.randint(1, 3)):
            yield AppendTurn(session, tuple(Body(sentence(planner.rng)) for _ in range(size)))
        if (yield ReadBack(session, positioned=True)) == "ok":
            yield _change(planner, session)
            yield ReadBack(session)


def _change(planner: Planner, session: str) -> Intent:
    rng = planner.rng
    possible = sorted(planner.abilities & {"retract", "replace"})
    if rng.choice(possible) == "replace":
        return ReplaceAll(session, (Body(f"summary: {sentence(rng)}"), Body(sentence(rng))))
    places = (LAST,) if rng.random() < 0.5 else (rng.random(), rng.random())
    return TakeBack(session, places, compare=rng.random() < 0.5)


changes = Workload("changes", _changes, needs_one=frozenset({"retract", "replace"}))
