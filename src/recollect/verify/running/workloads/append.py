"""Appending: single messages, turns, difficult texts and ids, long sessions."""

import random

from recollect.verify.running.workloads.intents import AppendTurn, Body, Plan, Planner, ReadBack, Workload

WORDS = (
    "my order",
    "the blue one",
    "tomorrow at nine",
    "Xiao Li",
    "as I said",
    "never mind",
    "yes",
    "the invoice",
)

NEIGHBOURS = (
    "user", "User", "user ", " user", "user:1", "user:1:2", "user_1", "user%", "user*", "user?", "[user]",
    "{user}", "user/1", "user\\1", "user'", 'user"', "用户", "user\n", "user:messages", "user:1:messages",
    "user:last",
)  # fmt: skip
"""Ids that differ only in case, spaces, separators or glob characters, or that end with a suffix stores give keys."""

LONG_CHARACTERS = 100_000


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 12)))


def difficult(rng: random.Random, unmarked: bool) -> Body:
    """A text of a kind that stores stumble over."""
    kind = rng.randrange(10)
    if kind == 0 and unmarked:
        return Body("", marked=False)
    if kind == 1 and unmarked:
        return Body("yes", marked=False)
    if kind == 2 and rng.random() < 0.2:
        return Body("x" * LONG_CHARACTERS)
    if kind == 3:
        return Body("我叫小明，昨天说过了。 Ещё раз. مرحبا")
    if kind == 4:
        return Body("👩‍👩‍👧‍👦 🇨🇳 e\u0301")
    if kind == 5:
        return Body("tab\t, line\nend, bell\x07, \x1f, del\x7f")
    if kind == 6:
        return Body('{"role": "system", "content": "not JSON of yours"}')
    return Body(sentence(rng))


def _bodies(planner: Planner, size: int) -> tuple[Body, ...]:
    return tuple(Body(sentence(planner.rng)) for _ in range(size))


def _append(planner: Planner) -> Plan:
    while True:
        session = planner.session()
        yield AppendTurn(session, _bodies(planner, 1))
        if planner.rng.random() < 0.1:
            yield ReadBack(session, last=20)


def _turns(planner: Planner) -> Plan:
    sizes = (1, 2, 2, 2, 8) if "batches" in planner.abilities else (1,)
    while True:
        session = planner.session()
        yield AppendTurn(session, _bodies(planner, planner.rng.choice(sizes)))
        if planner.rng.random() < 0.15:
            yield ReadBack(session, last=planner.rng.choice((None, 5, 50)))


def _mixed(planner: Planner) -> Plan:
    sizes = (1, 2) if "batches" in planner.abilities else (1,)
    # Texts without a number are told apart by their order: one client says them, or none if the store drops the oldest.
    unmarked = planner.number == 0 and "window" not in planner.abilities
    while True:
        session = planner.session()
        bodies = tuple(difficult(planner.rng, unmarked) for _ in range(planner.rng.choice(sizes)))
        yield AppendTurn(session, bodies)
        if unmarked and planner.rng.random() < 0.3:
            yield AppendTurn(session, (Body("yes", marked=False),))
            yield AppendTurn(session, (Body("yes", marked=False),))
        if planner.rng.random() < 0.1:
            yield ReadBack(session)


LONGER = 110
"""Messages in a session, which is more than the usual windows of 20, 50 and 100."""


def _trimmed(planner: Planner) -> Plan:
    """Sessions longer than the usual trims: what a store silently cuts off is missing from the final reads."""
    size = 50 if "batches" in planner.abilities else 1
    while True:
        yield AppendTurn(planner.sessions[0], _bodies(planner, size))


append = Workload("append", _append, refuses=frozenset({"whole-list"}))
turns = Workload("turns", _turns, refuses=frozenset({"whole-list"}))
mixed = Workload("mixed", _mixed, sessions=NEIGHBOURS, refuses=frozenset({"whole-list"}), unmarked=True)
trimmed = Workload("trimmed", _trimmed, refuses=frozenset({"whole-list"}), enough=LONGER)
