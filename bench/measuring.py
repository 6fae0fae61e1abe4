"""Interleaved measuring: short slices in rounds, and ratios taken inside a round.

A machine's speed changes from minute to minute, and with it every number of a benchmark that runs one contender after
the other. Here each round gives every contender one short slice, in rotated order, and a ratio compares two slices of
the same round. Reported are the median of the rounds' ratios and their spread, from the 10th to the 90th percentile.
The first round warms up and is dropped. Peers take part in every `peer_every`-th round.
"""

import gc
import statistics
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from contenders.apart import OursApart
from contenders.contender import CLIENTS_MANY, CLIENTS_MAX, Contender
from contenders.ours import Ours

SMALL, LARGE = 1_000, 100_000


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    slice_s: float
    clients: int = 1
    one_session: bool = False
    read_size: int | None = None
    """Messages in the session that is read; None for appending."""


APPEND = Column("append", "append, 1 client", 0.2)
APPEND_EIGHT = Column("append_8", "append, 8 clients, 8 sessions", 0.4, CLIENTS_MAX)
APPEND_SHARED = Column("append_8_one_session", "append, 8 clients, 1 session", 0.3, CLIENTS_MAX, True)
APPEND_MANY = Column("append_64", "append, 64 clients, 64 sessions", 0.4, CLIENTS_MANY)
READ_SMALL = Column("read", f"last 100 of {SMALL:,}", 0.1, read_size=SMALL)
READ_LARGE = Column("read_large", f"last 100 of {LARGE:,}", 0.1, read_size=LARGE)
APPENDING = (APPEND, APPEND_EIGHT, APPEND_SHARED, APPEND_MANY)
READING = (READ_SMALL, READ_LARGE)
COLUMNS = (*APPENDING, *READING)


@dataclass(frozen=True)
class Effort:
    rounds: int
    peer_every: int
    slice_factor: float
    peers_large: int
    """Rounds in which peers read the large session."""


FULL = Effort(rounds=12, peer_every=2, slice_factor=1.0, peers_large=1)
QUICK = Effort(rounds=4, peer_every=2, slice_factor=0.4, peers_large=0)


class Spread(NamedTuple):
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return cls(statistics.median(values), tenths[0], tenths[-1])


@dataclass
class Rates:
    """Operations a second: of each column, of each contender, by round."""

    by_column: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Peers that raised, with the last of what they raised."""

    def rate(self, column: Column, contender: str) -> Spread | None:
        rounds = self.by_column.get(column.key, {}).get(contender)
        return Spread.of(list(rounds.values())) if rounds else None

    def ratio(
        self, column: Column, contender: str, to_column: Column, to_contender: str, *, of_time: bool = False
    ) -> Spread | None:
        """How many times faster, or with `of_time` slower, than the other, round by round."""
        rounds = self.by_column.get(column.key, {}).get(contender, {})
        others = self.by_column.get(to_column.key, {}).get(to_contender, {})
        ratios = [rounds[number] / others[number] for number in rounds.keys() & others.keys()]
        if not ratios:
            return None
        return Spread.of([1 / ratio for ratio in ratios] if of_time else ratios)


def is_peer(contender: Contender) -> bool:
    return not isinstance(contender, Ours | OursApart) and not contender.name.startswith("raw")


async def measure(contenders: Sequence[Contender], effort: Effort, say: Callable[[str], None]) -> Rates:
    rates = Rates()
    filled = await _fill(contenders, effort, rates, say)
    gc.collect()
    gc.freeze()
    for column in APPENDING:
        say(column.title)
        for number in range(-1, effort.rounds):
            for contender in _taking_part(contenders, effort, number):
                if column.clients not in contender.append_clients or (
                    column.one_session and not contender.shares_sessions
                ):
                    continue
                slice_ = _append_slice(contender, column, effort)
                await _note(rates, column, contender, number, slice_)
    say("reading")
    for number in range(-1, effort.rounds):
        for contender in _taking_part(contenders, effort, number):
            for column in READING:
                session = filled.get((contender.name, column.key))
                if session is None or (column is READ_LARGE and _spared(contender, effort, number)):
                    continue
                slice_ = contender.read_rate(session, column.slice_s * effort.slice_factor)
                await _note(rates, column, contender, number, slice_)
    return rates


async def _note(
    rates: Rates, column: Column, contender: Contender, number: int, slice_: Coroutine[Any, Any, float]
) -> None:
    """Runs the slice. Whatever goes wrong with a peer is noted, and the others go on; our own errors are errors."""
    try:
        rate = await slice_
    except Exception as error:
        if not is_peer(contender):
            raise
        rates.failed[contender.name] = f"{column.title}: {type(error).__name__}: {error}"
        return
    if number >= 0:
        rates.by_column.setdefault(column.key, {}).setdefault(contender.name, {})[number] = rate


def _reads_large(contender: Contender, effort: Effort) -> bool:
    return contender.reads_large and (effort.peers_large > 0 or not is_peer(contender))


def _spared(contender: Contender, effort: Effort, number: int) -> bool:
    """Peers read the large session in a few rounds only: some of them need seconds for it."""
    return is_peer(contender) and not 0 <= number < effort.peers_large * effort.peer_every


async def _append_slice(contender: Contender, column: Column, effort: Effort) -> float:
    """A slice has sessions of its own, so that every round starts the same."""
    one = str(uuid.uuid4())
    sessions = [one if column.one_session else str(uuid.uuid4()) for _ in range(column.clients)]
    return await contender.append_rate(sessions, column.slice_s * effort.slice_factor)


def _taking_part(contenders: Sequence[Contender], effort: Effort, number: int) -> list[Contender]:
    taking_part = [
        one for one in contenders if not is_peer(one) or number < 0 or number % effort.peer_every == 0
    ]
    shift = number % len(taking_part)
    return taking_part[shift:] + taking_part[:shift]


async def _fill(
    contenders: Sequence[Contender], effort: Effort, rates: Rates, say: Callable[[str], None]
) -> dict[tuple[str, str], str]:
    filled: dict[tuple[str, str], str] = {}
    for contender in contenders:
        if not contender.reads:
            continue
        for column in READING:
            assert column.read_size is not None
            if column is READ_LARGE and not _reads_large(contender, effort):
                continue
            say(f"filling {contender.name} with {column.read_size:,} messages")
            session = str(uuid.uuid4())
            try:
                await contender.fill(session, column.read_size)
            except Exception as error:
                if not is_peer(contender):
                    raise
                rates.failed[contender.name] = f"filling: {type(error).__name__}: {error}"
            else:
                filled[contender.name, column.key] = session
    return filled
