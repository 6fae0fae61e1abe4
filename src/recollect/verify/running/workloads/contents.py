"""What assistants really say, in sessions whose ids are easily confused.

Every session has one writer, so whatever goes wrong here needs no second one. The exception is the session in which all
clients say the same thing twice in a row: each has words of its own, so that it is known who said what.
"""

from collections.abc import Generator, Iterator, Mapping, Set
from itertools import count

from recollect.verify.running.workloads.intents import (
    AppendTurn,
    Body,
    Intent,
    Plan,
    Planner,
    ReadBack,
    SaveBack,
    Workload,
)
from recollect.verify.target.contents import AGAIN, CONTENT, KINDS, REAL_IDS
from recollect.verify.target.outcomes import Outcome

SAID_TWICE, SAID_NOTHING = "said twice", "said nothing"
TWICE = ("yes", "ok", "thanks", "go on", "no")
SAME_EVERY, SAME_MAX = 4, 24
READ_EVERY = 5
ENOUGH = 90
"""After this many messages one writer has said everything, and something in every session."""

IDS = (
    "user", "User", "USER", "user ", " user", "caf\\u00e9", "cafe\\u0301", "user\\t", "user\\n",
    "a", "a:b", "a:b:c", "a%3Ab", "a_b", "a-b", "a/b", "a.b", "a:messages", "a:meta", "a:index", "messages:a",
    "straße", "strasse", "user\\u00a0", "user\\u200b", "user?", "user\\ufffd",
    "user\\x00", "user\\ud83d", "user\\udc00",
    "200 digits, the last is 9", "200 digits, the last is 8", "200 digits, the first is 1",
)  # fmt: skip
"""Ids that differ only in case, in a blank, in their Unicode normal form, in what cannot be encoded, or in the
separators and suffixes that stores put into their keys, or in one end of a long id. Some are labels from `REAL_IDS`."""

assert set(REAL_IDS) <= set(IDS)


def _contents(planner: Planner) -> Plan:
    place = planner.number % planner.writers
    own = IDS[place :: planner.writers]
    kinds = [kind for kind in KINDS if f"{CONTENT}{kind}" in planner.abilities] or [""]
    kinds = kinds[place * 3 :] + kinds[: place * 3]  # each client starts elsewhere, so all kinds come soon
    answered = True
    for step in count():
        # First everything once in one session, so that a refusal is about the kind and not the id.
        round_, number = (0, 0) if step < len(kinds) else divmod(step - len(kinds), len(own))
        session = own[number]
        yield from _say(planner, session, Body("", kind=kinds[(step + round_) % len(kinds)]))
        if step % SAME_EVERY == 0 and step < SAME_EVERY * SAME_MAX:
            for same, text in _same(planner):
                for _ in range(2):
                    # A text without an answer may be there or not: a later one could be taken for it.
                    if answered:
                        outcome = yield from _say(planner, same, Body(text, marked=False, kind=AGAIN))
                        answered = outcome != "unknown"
        if step % READ_EVERY == 0:
            yield ReadBack(session)


def _same(planner: Planner) -> Iterator[tuple[str, str]]:
    """The sessions in which this client says the same twice, and what. Equal texts are told apart by their order alone,
    so no other client may say them; and a whole list, or one that drops its oldest, is for one writer."""
    number = planner.number
    if number == 0 or planner.abilities.isdisjoint({"whole-list", "window"}):
        yield SAID_TWICE, TWICE[number] if number < len(TWICE) else f"yes, {number}"
    if number == 0:
        yield SAID_NOTHING, ""


def _say(planner: Planner, session: str, body: Body) -> Generator[Intent, Outcome, Outcome]:
    if "whole-list" not in planner.abilities:
        return (yield AppendTurn(session, (body,)))
    if (yield ReadBack(session)) == "ok":
        return (yield SaveBack(session, (body,)))
    return "fail"


def left_out(abilities: Set[str], said: Mapping[str, bool]) -> str | None:
    """What the store was not asked to keep, or would not take; `said` has the kinds that were tried, and whether any
    message of each was acknowledged. None if all were."""
    without = [KINDS[kind].called for kind in KINDS if f"{CONTENT}{kind}" not in abilities]
    refused = [KINDS[kind].called for kind in KINDS if not said.get(kind, True)]
    late = [KINDS[kind].called for kind in KINDS if f"{CONTENT}{kind}" in abilities and kind not in said]
    parts = []
    if without:
        parts.append(f"not tried, because its interface has no place for it: {', '.join(without)}")
    if refused:
        parts.append(f"not accepted, and so not judged: {', '.join(refused)}")
    if late:
        parts.append(f"not tried, because there was no time: {', '.join(late)}")
    return "; ".join(parts) or None


contents = Workload(
    "contents", _contents, sessions=(*IDS, SAID_TWICE, SAID_NOTHING), unmarked=True, enough=ENOUGH
)
