"""Reading, changing and writing back: where a newer message is overwritten."""

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    Body,
    Client,
    Plan,
    ReadBack,
    Remove,
    SaveBack,
    Workload,
    Write,
)

COMPACT_EVERY = 8


def _rewrite(client: Client) -> Plan:
    """Load, add, save: what a whole-list store makes its callers do."""
    while True:
        session = client.session()
        if (yield ReadBack(session)) == "ok":
            yield SaveBack(session, (Body(sentence(client.rng)),))


def _compact(client: Client) -> Plan:
    """The same, and now and then the older part is replaced by a summary."""
    step = 0
    while True:
        step += 1
        session = client.session()
        if (yield ReadBack(session)) == "ok":
            drop = 3 if step % COMPACT_EVERY == 0 else 0
            yield SaveBack(session, (Body(sentence(client.rng)),), drop=drop)


def _summarise(client: Client) -> Plan:
    """Reads the session and appends a summary, if nobody wrote meanwhile; others go on talking."""
    while True:
        session = client.session()
        if client.number % 2 == 0:
            if (yield ReadBack(session)) == "ok":
                yield Write(session, (Body(f"summary: {sentence(client.rng)}"),), compare=True)
        else:
            yield Write(session, (Body(sentence(client.rng)),))


def _forget(client: Client) -> Plan:
    """Each client talks in a session of its own, and forgets it now and then; the ids are close to each other."""
    session = client.sessions[client.number % len(client.sessions)]
    while True:
        for _ in range(client.rng.randint(2, 10)):
            yield Write(session, (Body(sentence(client.rng)),))
        yield ReadBack(session)
        if client.rng.random() < 0.5:
            yield Remove(session)
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
