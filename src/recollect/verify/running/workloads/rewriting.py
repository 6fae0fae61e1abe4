"""Reading, changing and writing back, where a newer message can be overwritten."""

import itertools

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    AppendTurn,
    Body,
    Plan,
    Planner,
    ReadBack,
    SaveBack,
    Workload,
)
from recollect.verify.target.pipe import Forget

COMPACT_EVERY = 8


def _rewrite(planner: Planner) -> Plan:
    """Load, add, save: what a whole-list store makes its callers do."""
    while True:
        session = planner.session()
        if (yield ReadBack(session)) == "ok":
            yield SaveBack(session, (Body(sentence(planner.rng)),))


def _compact(planner: Planner) -> Plan:
    """The same, and now and then the older part is replaced by a summary."""
    step = 0
    while True:
        step += 1
        session = planner.session()
        if (yield ReadBack(session)) == "ok":
            drop = 3 if step % COMPACT_EVERY == 0 else 0
            yield SaveBack(session, (Body(sentence(planner.rng)),), drop=drop)


def _summarise(planner: Planner) -> Plan:
    """Reads the session and appends a summary if nobody has written since; others go on talking."""
    while True:
        session = planner.session()
        if planner.number % 2 == 0:
            if (yield ReadBack(session)) == "ok":
                yield AppendTurn(session, (Body(f"summary: {sentence(planner.rng)}"),), compare=True)
        else:
            yield AppendTurn(session, (Body(sentence(planner.rng)),))


def _forget(planner: Planner) -> Plan:
    """Each client talks in a session of its own, and forgets it now and then; the ids are close to each other. One that
    is alone talks in all of them, so that what it forgets has neighbours."""
    first = planner.number % len(planner.sessions)
    mine = planner.sessions if planner.writers == 1 else planner.sessions[first : first + 1]
    for session in itertools.cycle(mine):
        for _ in range(planner.rng.randint(2, 10)):
            yield AppendTurn(session, (Body(sentence(planner.rng)),))
        yield ReadBack(session)
        if planner.rng.random() < 0.5:
            yield Forget(session)
            yield ReadBack(session)


rewrite = Workload("rewrite", _rewrite, needs=frozenset({"whole-list"}))
compact = Workload("compact", _compact, needs=frozenset({"whole-list"}), many_writers=False)
summarise = Workload("summarise", _summarise, needs=frozenset({"expect"}))
forget = Workload(
    "forget",
    _forget,
    sessions=("chat-1", "chat-10", "chat-100"),
    needs=frozenset({"forget"}),
    refuses=frozenset({"whole-list"}),
)
