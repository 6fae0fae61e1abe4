"""Proving that two reads disagree on order.

The one pass of `collect` notices conflicting ranks, which is only a suspicion: the ranks of messages that were
never read together are a guess. This second pass searches the reads of the suspected sessions for one that
really has the two messages the other way round. Only suspicious histories pay for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from recollect.verify.judging.evidence import Disagreement, Evidence, Proven
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.op import Context, ReadAsked, Seen
from recollect.verify.judging.read_deltas import WHOLE, OddTable, View, chain_of, count_of

SUSPICIONS_MAX = 200  # per session; more of the same would only raise the count


def prove(history: AnyHistory, evidence: Evidence) -> list[Proven]:
    """The disagreements that two reads of the history prove."""
    suspects: dict[str, list[Disagreement]] = defaultdict(list)
    for found in evidence.disagreements:
        session = evidence.sessions[found.session]
        if len(suspects[session]) < SUSPICIONS_MAX:
            suspects[session].append(found)
    proven: dict[int, Proven] = {}
    if suspects:
        for read, session, view in views(history, set(suspects)):
            for found in suspects[session]:
                if found.message not in proven and _precedes(view, found.message, found.other):
                    proven[found.message] = Proven(found.message, found.other, found.read, read)
    return sorted(proven.values())


def _precedes(view: View, left: int, right: int) -> bool:
    return left in view and right in view and view.index(left) < view.index(right)


def views(
    history: AnyHistory, sessions: set[str] | None = None, *, is_whole: bool = False
) -> Iterator[tuple[int, str, View]]:
    """Every read of these sessions, or of all, decoded in full: its number, its session and its elements.

    With `is_whole`, only reads that had to return everything."""
    odds = OddTable()
    chains: dict[tuple[str, int], View] = {}
    asks: dict[int, ReadAsked | None] = {}
    read = -1
    for event in history:
        if event.operation != "read" and event.operation != "context":
            continue
        if event.kind == "invoke":
            asks[event.process] = event.value if type(event.value) is ReadAsked else None
        elif event.kind == "ok":
            read += 1
            if sessions is not None and event.session not in sessions:
                continue
            ask, seen = asks.get(event.process), Seen()
            if type(event.value) is Context:
                ask, seen = event.value.parts[0].ask, event.value.parts[0].seen
            elif type(event.value) is Seen:
                seen = event.value
            chain = chain_of(ask, count_of(seen))
            key = (event.session, chain)
            view = chains[key] = odds.decode(chains.get(key, []), seen)
            if chain == WHOLE or not is_whole:
                yield read, event.session, view
