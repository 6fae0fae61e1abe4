"""What a watch can report, and how a loss is named from what is known about the engine."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from recollect.audit.source import EngineFacts
from recollect.printable import counted

MEANINGS: dict[str, str] = {
    "wiped": "the running engine has forgotten everything: FLUSHALL, DROP, or the like",
    "replaced": "another store answers: the engine or its volume was swapped, or has lost the store's identity",
    "lost-after-restart": "the engine was restarted, and does not know what it had acknowledged",
    "lost-after-failover": "another server answers, and does not know what the one before had acknowledged",
    "rolled-back": "the store is at an older state than it was, further back than its settings explain",
    "evicted": "the engine has thrown acknowledged messages away to make room",
    "expired-early": "messages are gone before the time that they were to live",
    "expiry-changed": "the messages will expire at another time than their store said",
    "deleted": "acknowledged messages are gone, and neither a restart nor an expiry explains it",
    "damaged": "a record is not what was written, or the engine answers and its memory cannot be read",
    "reordered": "messages are in another order than they were acknowledged in",
    "stale-replica": "the replica does not have what was acknowledged a while ago",
    "settings-changed": "the engine's settings for durability are not those it had",
    "slow": "acknowledgements in a row took longer than they may",
    "unreachable": "the engine does not answer",
}
"""Names are stable. The last one is not a loss; with `--once` it is exit code 3."""
UNREACHABLE = "unreachable"

FAILOVER_SLACK_S = 2.0
"""Tolerance when deciding that the server that answers was already running earlier, and so is another one: clocks and
uptimes are not exact."""
WINDOW_SLACK_S = 3.0
"""Added to what an engine's settings can lose: messages are acknowledged a moment before they are noted."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sentence: str
    lost: int = 0
    """Messages of the canary that are gone."""
    span_s: float = 0.0
    """From the acknowledgement of the first of them until now."""
    server: str = ""
    """Which of several it happened on."""


@dataclass(frozen=True)
class CanaryLoss:
    """Messages of the canary that are not there."""

    lost: int
    kept: int
    span_s: float
    """From the oldest of them to now: how far back the loss reaches."""
    position: int | None
    """The session's last sequence now; None if there is no session."""
    acknowledged: int
    """The last sequence that was acknowledged."""
    expired: bool
    """Whether the engine says that it expired."""
    unreadable: bool = False
    """Whether something else is where they belong."""


def named(
    loss: CanaryLoss, before: EngineFacts, now: EngineFacts, heard_at: float, window_s: float | None
) -> Alarm:
    """Names the loss. `window_s` is how much the engine's earlier settings can lose; None means no bound."""
    restarted = before.run != now.run
    failed_over = restarted and now.started_at and now.started_at < heard_at - FAILOVER_SLACK_S
    behind = loss.position is None or loss.position < loss.acknowledged
    if now.identity is not None and now.identity != before.identity:
        name, why = "replaced", f"it was store {before.identity}, now it is {now.identity}"
    elif loss.unreadable:
        name, why = "damaged", "something else is where they belong"
    elif not restarted and now.evicted > before.evicted:
        name, why = "evicted", f"evicted since: {counted(now.evicted - before.evicted, 'key')}"
    elif loss.expired:
        name, why = "expired-early", "the engine says that the session is over, and it is not due"
    elif failed_over:
        name, why = "lost-after-failover", "the server that answers is older than what it does not know"
    elif restarted and now.started_at and now.identity is None:
        name, why = (
            "lost-after-restart",
            "the engine came back empty: nothing was kept, or its volume is another one",
        )
    elif restarted and now.started_at and (window_s is None or loss.span_s <= window_s + WINDOW_SLACK_S):
        name, why = "lost-after-restart", "the engine was restarted since"
    elif now.identity is None:
        name, why = "wiped", "the store's own identity is gone with them"
    elif behind and loss.position is not None:
        name, why = "rolled-back", f"the session was at {loss.acknowledged}, now it is at {loss.position}"
    elif restarted:
        name, why = "rolled-back", "the engine was restarted, or its file is another one"
    else:
        name, why = "deleted", "no restart, no eviction and no expiry explains it"
    gone, there = ("is" if count == 1 else "are" for count in (loss.lost, loss.kept))
    told = f"{counted(loss.lost, 'acknowledged message')} {gone} gone, {loss.kept:,} {there} there"
    sentence = f"{told}: {why}"
    return Alarm(name=name, sentence=sentence, lost=loss.lost, span_s=round(loss.span_s, 3))
