"""Reading while others write."""

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    AppendTurn,
    Body,
    Plan,
    Planner,
    ReadBack,
    Workload,
)
from recollect.verify.target.pipe import ReadContext, SearchIndex

MANY = 100
FOLLOWED = 4


def _watch(planner: Planner) -> Plan:
    """What a reader does alongside every workload: reads whole sessions, and their ends."""
    ends = (None, 3, 50) if "last" in planner.abilities and not planner.whole_reads else (None,)
    while True:
        yield ReadBack(planner.session(), last=planner.rng.choice(ends))
        if "search" in planner.abilities:
            yield SearchIndex(planner.session())  # a reader that stays open must find what it lists


def _context(planner: Planner) -> Plan:
    """Reads contexts, which are assembled from several statements, while turns go on being written."""
    size = 2 if "batches" in planner.abilities else 1
    while True:
        session = planner.sessions[0]
        if planner.number % 2:
            yield ReadContext(session)
        else:
            yield AppendTurn(session, tuple(Body(sentence(planner.rng)) for _ in range(size)))


def _follow(planner: Planner) -> Plan:
    """Some write; the others read a session once and then only what is new, by the store's own cursor."""
    while True:
        session = planner.session()
        if planner.number % 2 == 0:
            yield AppendTurn(session, (Body(sentence(planner.rng)),))
        elif (yield ReadBack(session)) == "ok":
            for _ in range(FOLLOWED):
                yield ReadBack(session, after_seen=True)


def _search(planner: Planner) -> Plan:
    """Remembers, and asks the index for what was remembered.

    It remembers a lot: an index does its dangerous work only once a thousand vectors or so have accumulated.
    """
    sizes = (1, 2, MANY, MANY) if "batches" in planner.abilities else (1,)
    while True:
        session = planner.session()
        size = planner.rng.choice(sizes)
        yield AppendTurn(session, tuple(Body(sentence(planner.rng)) for _ in range(size)))
        if planner.rng.random() < 0.1:
            yield SearchIndex(session)


watch = Workload("watch", _watch)
follow = Workload("follow", _follow, needs=frozenset({"after"}), refuses=frozenset({"whole-list"}))
context = Workload("context", _context, needs=frozenset({"context"}), refuses=frozenset({"whole-list"}))
search = Workload("search", _search, needs=frozenset({"search"}), enough=2_500)
