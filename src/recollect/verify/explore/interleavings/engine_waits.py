"""Requests that the engine holds: who waits for whom, and whom the engine lets go on.

A step is over when the engine has nothing more to do: every request it was given is answered, or waits for somebody
whose next step is ours to choose. Only then is the next step chosen, so that no order depends on how fast the engine
is. A circle of requests that wait for each other is not the end: the engine will refuse one of them.

Where several requests wait for the same lock, the engine itself picks who gets it. `pick` says whom it picked; that is
part of the schedule, and a run in which it picks otherwise is tried again.
"""

from __future__ import annotations

import select
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeVar

from recollect.verify.engines import Engine
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.explore.interleavings.dialogues import Dialogue, SentRequest
from recollect.verify.explore.interleavings.held_connection import real_clock
from recollect.verify.wire import pgwire, resp

PATIENCE_S = 5.0
USUALLY_S = 0.0005
"""Most requests are answered sooner; then nobody has to be asked who waits."""
SELDOM_S = 0.01
"""The same for requests that hardly ever wait for anybody, because they write nothing; and for those of a connection
that was just made, for which the engine has everything still to look up."""
COLD_MAX = 30
"""So many requests, a dozen of them to open it."""
AGAIN_S = 0.001
DEADLOCK = "40P01"
"""What PostgreSQL says to whom it refuses in order to end a circle."""


class InEngine(Protocol):
    """A connection whose request the engine has."""

    in_engine: bool
    dialogue: Dialogue
    sent: int
    """How many requests it has sent so far."""

    @property
    def request(self) -> SentRequest | None: ...
    def fileno(self) -> int: ...
    def hear(self) -> bool:
        """Takes what the engine has said so far, without waiting; whether the reply is whole."""
        ...


A = TypeVar("A", bound=InEngine)


class EngineWaits(Protocol):
    def all_wait(self, asked: Sequence[InEngine]) -> bool:
        """Whether none of these is answered before somebody else has moved."""
        ...


class UnknownWaits:
    """An engine that cannot be asked: a request that may wait does, if it is not answered at once."""

    def all_wait(self, asked: Sequence[InEngine]) -> bool:
        return all(one.request is not None and one.request.waits for one in asked)


class RedisWaits:
    """One thread serves all: what had come before the first PING is answered before the second."""

    def __init__(self, connection: resp.Connection) -> None:
        self._connection = connection

    def all_wait(self, asked: Sequence[InEngine]) -> bool:
        if not all(one.request is not None and one.request.waits for one in asked):
            return False
        self._connection.ask("PING")
        self._connection.ask("PING")
        return not _ready(asked, 0)


class PostgresWaits:
    def __init__(self, connection: pgwire.Connection) -> None:
        self._connection = connection

    def all_wait(self, asked: Sequence[InEngine]) -> bool:
        backends = [one.dialogue.backend for one in asked]
        known = [str(backend) for backend in backends if backend is not None]
        if len(known) < len(backends):
            return False
        rows = self._connection.ask(
            f"SELECT pid, array_to_string(pg_blocking_pids(pid), ' ') FROM unnest('{{{','.join(known)}}}'::int[]) pid"
        )
        return all_stand({str(pid): (blockers or "").split() for pid, blockers in rows})


def all_stand(blockers: Mapping[str, Collection[str]]) -> bool:
    """Whether everybody waits, directly or through others, for somebody who is not among them."""
    standing: set[str] = set()
    while True:
        more = {
            one
            for one, waits_for in blockers.items()
            if one not in standing and any(other not in blockers or other in standing for other in waits_for)
        }
        if not more:
            return len(standing) == len(blockers)
        standing |= more


def waits_of(engine: Engine, held: ExitStack) -> EngineWaits:
    """How to ask this engine; what it takes is closed with `held`."""
    if isinstance(engine, PostgresEngine):
        postgres = pgwire.Connection(engine.address)
        held.callback(postgres.close)
        return PostgresWaits(postgres)
    if isinstance(engine, RedisEngine):
        redis = resp.Connection(engine.address)
        held.callback(redis.close)
        return RedisWaits(redis)
    return UnknownWaits()


def settle(
    asked: Sequence[A], waits: EngineWaits, patience_s: float = PATIENCE_S, *, newest: A | None = None
) -> list[A]:
    """Waits until the engine has nothing more to do; those it has answered. Those who waited before the newest still
    do if that was answered and releases nobody. One that it asks the engine to give up is answered soon, even if it
    still seems to wait."""
    left, answered = list(asked), []
    cancelled = newest.request.cancels if newest is not None and newest.request is not None else None
    end, wait_s = real_clock() + patience_s, SELDOM_S if all(map(_seldom_waits, asked)) else USUALLY_S
    while left:
        heard = _ready(left, wait_s)
        came = [one for one in heard if one.hear()]
        if came:
            answered += came
            asks_for = newest.request if newest is not None and came == [newest] else None
            if asks_for is not None and not asks_for.releases:
                break
            left = [one for one in left if one.in_engine]
            wait_s = 0.0
        elif not heard:
            is_given_up = cancelled is not None and any(one.dialogue.backend == cancelled for one in left)
            if (waits.all_wait(left) and not is_given_up) or real_clock() > end:
                break
            wait_s = AGAIN_S
    return answered


def _seldom_waits(asked: InEngine) -> bool:
    if asked.sent <= COLD_MAX:
        return True
    return asked.request is not None and not any(write for _, write in asked.request.footprint)


def _ready(asked: Sequence[A], timeout_s: float) -> list[A]:
    """Those that have something to hear. `poll` waits for whole milliseconds."""
    return select.select(asked, (), (), timeout_s)[0]


def pick(waited: Sequence[tuple[str, InEngine]], answered: Sequence[tuple[str, InEngine]]) -> str:
    """Whom the engine picked, for the schedule; empty where it had no choice. First come those who got what they asked
    for, then those who were refused. `waited` had waited before the newest request came; each comes with its owner."""
    before = {id(one) for _, one in waited}
    if waited and any(one.dialogue.error == DEADLOCK for _, one in answered):
        served = list(answered)
    elif len(waited) > 1:
        served = [(owner, one) for owner, one in answered if id(one) in before]
    else:
        return ""
    names = [
        owner for owner, _ in sorted(served, key=lambda owned: (owned[1].dialogue.error != "", owned[0]))
    ]
    return "".join(names)
