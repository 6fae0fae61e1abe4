"""Reading while others write."""

from recollect.verify.running.workloads.append import sentence
from recollect.verify.running.workloads.intents import (
    Body,
    Client,
    Plan,
    ReadBack,
    ReadParts,
    Seek,
    Workload,
    Write,
)

MANY = 100


def _watch(client: Client) -> Plan:
    """What a reader does beside every workload: whole sessions, and their ends."""
    ends = (None, 3, 50) if "last" in client.abilities and not client.whole_reads else (None,)
    while True:
        yield ReadBack(client.session(), last=client.rng.choice(ends))
        if "search" in client.abilities:
            yield Seek(client.session())  # a reader that stays must find what it lists


def _context(client: Client) -> Plan:
    """A context is assembled from several statements while turns go on being written."""
    size = 2 if "batches" in client.abilities else 1
    while True:
        session = client.sessions[0]
        if client.number % 2:
            yield ReadParts(session)
        else:
            yield Write(session, tuple(Body(sentence(client.rng)) for _ in range(size)))


def _search(client: Client) -> Plan:
    """Remembers, and asks the index for what was remembered.

    Much of it at once: an index does its dangerous work only when a thousand vectors or so have come together.
    """
    sizes = (1, 2, MANY, MANY) if "batches" in client.abilities else (1,)
    while True:
        session = client.session()
        size = client.rng.choice(sizes)
        yield Write(session, tuple(Body(sentence(client.rng)) for _ in range(size)))
        if client.rng.random() < 0.1:
            yield Seek(session)


watch = Workload("watch", _watch)
context = Workload("context", _context, needs=frozenset({"context"}), refuses=frozenset({"whole-list"}))
search = Workload("search", _search, needs=frozenset({"search"}), enough=2_500)
