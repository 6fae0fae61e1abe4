"""What frameworks do besides appending: take messages back, replace all of them, write to two sessions at once."""

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

CHANGES = frozenset({"retract", "replace"})
"""Abilities to change what a read showed."""
SPANNING = 0.3
"""How many of the turns are over two sessions."""
LAST = 1.0
"""The place of the latest message: taking it back is a pop."""


def _changes(planner: Planner) -> Plan:
    """Talks, reads, and changes what it read; the next reads show what became of it."""
    changeable = bool(planner.abilities & CHANGES)
    while True:
        session = planner.session()
        for _ in range(planner.rng.randint(1, 3)):
            yield _turn(planner, session)
        if (yield ReadBack(session, positioned=changeable)) == "ok" and changeable:
            yield _change(planner, session)
            yield ReadBack(session)


def _turn(planner: Planner, session: str) -> AppendTurn:
    """A turn; now and then one that another session has a part in."""
    rng = planner.rng
    size = 2 if "batches" in planner.abilities else 1
    others = (
        [other for other in planner.sessions if other != session]
        if "append_many" in planner.abilities
        else []
    )
    beside: tuple[AppendTurn, ...] = ()
    if others and rng.random() < SPANNING:
        beside = (AppendTurn(rng.choice(others), (Body(sentence(rng)),)),)
    return AppendTurn(session, tuple(Body(sentence(rng)) for _ in range(size)), beside=beside)


def _change(planner: Planner, session: str) -> Intent:
    rng = planner.rng
    possible = sorted(planner.abilities & CHANGES)
    if rng.choice(possible) == "replace":
        return ReplaceAll(session, (Body(f"summary: {sentence(rng)}"), Body(sentence(rng))))
    places = (LAST,) if rng.random() < 0.5 else (rng.random(), rng.random())
    return TakeBack(session, places, compare=rng.random() < 0.5)


changes = Workload("changes", _changes, needs_one=CHANGES | {"append_many"})
