"""What frameworks do besides appending: take messages back, replace all of them, copy them, look for one by its id,
annotate a session, write to two sessions at once."""

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    AppendTurn,
    Body,
    ForkOff,
    Intent,
    Plan,
    Planner,
    ReadBack,
    ReplaceAll,
    TakeBack,
    Workload,
)
from recollect.verify.target.about import about
from recollect.verify.target.pipe import Forget, SearchIndex

CHANGES = frozenset({"retract", "replace"})
"""Abilities to change what a read showed."""
FORKS = 2
"""How often a client forks: a copy is as long as its source, and is read again at the end."""
FORKED = 0.3
"""How likely a client forks what it has read, until it has done so that often."""
ANNOTATED = 0.3
"""How often a client sets the metadata of a session it has used."""
LOOKED_FOR = 0.3
"""How often it looks for messages by their ids."""
SPANNING = 0.3
"""How many of the turns are over two sessions."""
LAST = 1.0
"""The place of the latest message: taking it back is a pop."""


def _changes(planner: Planner) -> Plan:
    """Talks, reads, and changes what it read; the next reads show what became of it."""
    changeable = bool(planner.abilities & CHANGES)
    forks = FORKS if "fork" in planner.abilities else 0
    while True:
        session = planner.session()
        for _ in range(planner.rng.randint(1, 3)):
            yield _turn(planner, session)
        positioned = changeable or forks > 0
        if (yield ReadBack(session, positioned=positioned)) == "ok" and positioned:
            if forks > 0 and planner.rng.random() < FORKED:
                yield from _fork(planner, session, f"{session}-{planner.number}-{forks}")
                forks -= 1
            elif changeable:
                yield _change(planner, session)
                yield ReadBack(session)
        if "annotate" in planner.abilities and planner.rng.random() < ANNOTATED:
            yield from _annotate(planner, about(session))
        if "find" in planner.abilities and planner.rng.random() < LOOKED_FOR:
            yield SearchIndex(session)


def _annotate(planner: Planner, metadata: str) -> Plan:
    if (yield ReadBack(metadata, positioned=True)) == "ok":
        yield ReplaceAll(metadata, (Body(f"title: {sentence(planner.rng)}"),))
        yield ReadBack(metadata)


def _fork(planner: Planner, session: str, named: str) -> Plan:
    """A copy, and a copy of the copy that has to survive it: nobody else uses the two."""
    copy, second = f"{named}-copy", f"{named}-second"
    yield ForkOff(session, copy)
    if (yield ReadBack(copy, positioned=True)) != "ok":
        return
    yield ForkOff(copy, second)
    # A promised loss may bring back what was forgotten.
    if "forget" in planner.abilities and planner.undisturbed:
        yield Forget(copy)
    elif "replace" in planner.abilities:
        yield ReplaceAll(copy, (Body(sentence(planner.rng)),))
    yield ReadBack(second)


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


changes = Workload("changes", _changes, needs_one=CHANGES | {"append_many", "fork", "annotate", "find"})
