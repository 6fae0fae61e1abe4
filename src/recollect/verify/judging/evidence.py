"""The evidence: a history, boiled down to columns and to the few facts that look wrong.

`gathering.py` fills it in one pass over the events; `order_proof.py`, `half_turns.py` and `half_changes.py` go back to
the history where something looks suspicious. The checkers read the evidence only. Columns are arrays, so ten million
operations fit in memory; a fact costs memory only where something is out of the ordinary.

Numbers: a message, a turn, a session and a read are each numbered from 0 in order of appearance. An "index"
is that of an event in the history. `NEVER` stands for "has not happened".
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from recollect.guarantees import DURABILITIES
from recollect.verify.judging.op import HistoryHeader
from recollect.verify.judging.read_deltas import OddTable

NEVER = -1

# Bits of `Evidence.state`, one byte per message.
IN_WHOLE = 1
IN_WINDOW = 2
SEEN = 4
DROPPED = 8

CLAIMS: tuple[str | None, ...] = (None, *DURABILITIES)
"""How durable an acknowledgement can say the write is, weakest first."""

CLOCK_FAULTS = frozenset({"clock-back", "clock-frozen", "clock-forward", "ttl-drift"})
LASTING = frozenset({"disk-full", "slow-fsync", "fsync-error"})
"""Faults that end with a kill, but under which the engine may die and come back on its own long before that."""
# Several writers are normal use, and a clock that stands still makes nothing expire: neither excuses a loss.
OLDER_DATA = "older-data"
"""What a run on older data has in place of a fault and a workload."""
NOT_A_DISTURBANCE = frozenset({"none", "concurrent-writers", "clock-frozen"})


NOTICED = "noticed"
"""A fault's own note that the store refused to go on with data other than its own."""
UNSAFE_COPY = "unsafe-copy"
"""The same, of a backup that the engine's documentation warns of: files copied while they are in use."""


class Absence(NamedTuple):
    """An acknowledged message that a read, begun after the acknowledgement, did not return.

    `since` is the index of the acknowledgement or of the last read that still had it. `back` is the first
    later read that has it again, or NEVER if it is missing for good. `floor` is the first element or the cursor of
    the window that should have had it, NEVER for a whole read. `oldest` is the first message that the read did return,
    NEVER if there was none.
    """

    message: int
    read: int
    since: int
    back: int = NEVER
    floor: int = NEVER
    oldest: int = NEVER


class Disturbance(NamedTuple):
    """A fault, or an engine that stopped without one. `healed` is the last index if it never was."""

    name: str
    injected: int
    injected_s: float
    healed: int


class Loss(NamedTuple):
    """A message missing for good.

    `disturbance` is the first one after the message was last known to be there, None if there was none
    between its acknowledgement and the read. `expired` means that it ran out of time: no crash and no other
    writer took it.
    """

    message: int
    absence: Absence
    disturbance: Disturbance | None
    expired: bool


class Retention(NamedTuple):
    """How long a turn's messages are to live, and when its write was invoked and acknowledged."""

    retention_s: float
    invoked_s: float


class TakenBack(NamedTuple):
    """An acknowledged forget, retract or replace; `claim` is how durable that removal is said to be."""

    invoked: int
    done: int
    done_s: float
    claim: int


class Sighting(NamedTuple):
    """An element that should not be in a read: `element` is a message, or the negative code of an odd one."""

    element: int
    session: int
    read: int


class Repeat(NamedTuple):
    """A message that a read shows again, for the `copies`-th time."""

    element: int
    session: int
    read: int
    copies: int


class Inversion(NamedTuple):
    """`later` stands before `message` in the read, although `message` comes first."""

    message: int
    later: int
    read: int
    same_turn: bool


class Disagreement(NamedTuple):
    """A suspicion: `message` follows `other` in `read`, and another read seems to have had it before `other`."""

    message: int
    other: int
    session: int
    read: int


class Proven(NamedTuple):
    """A disagreement with its proof: `read` has `other` before `message`, `reverse` the other way round."""

    message: int
    other: int
    read: int
    reverse: int


class Regression(NamedTuple):
    """A process saw a message that was not acknowledged yet in read `before`, and not in the later `read`."""

    message: int
    read: int
    before: int


class FailedRead(NamedTuple):
    """A read that raised at event `at` although the session had this many acknowledged messages."""

    session: int
    at: int
    error: str
    messages: int


class FirstRead(NamedTuple):
    """The first whole read of a session after the disturbance at `struck`.

    `kept` is whether it has any message that was written before.
    """

    struck: int
    session: int
    read: int
    kept: bool


class BlamedEnd(NamedTuple):
    """An operation that raised, or never ended, although nothing was broken."""

    how: str
    session: int
    at: int
    operation: str
    error: str


class HalfTurn(NamedTuple):
    """A read has the `seen` messages of a turn, and not the others."""

    turn: int
    read: int
    seen: int


class HalfChange(NamedTuple):
    """A read has `kept` of the `old` messages that a replace or retract takes away, and `arrived` of the `new` ones."""

    operation: str
    message: int
    invoked: int
    read: int
    kept: int
    old: int
    arrived: int
    new: int


class Refusal(NamedTuple):
    """The engine did not come back on its own data."""

    at: int
    time_s: float
    error: str


class Outage(NamedTuple):
    """Writes that failed after a fault was healed, with none that succeeded since."""

    fault: str
    healed: int
    last: int
    since_s: float
    until_s: float
    failed: int
    error: str

    @property
    def lasted_s(self) -> float:
        return self.until_s - self.since_s


class Hidden(NamedTuple):
    """A read lacks the message while the engine, asked directly, has more rows than were returned."""

    message: int
    read: int
    count_index: int
    rows: int


class Fracture(NamedTuple):
    """In one context read, statement `has` returned the message; statement `lacks` should have and did not."""

    message: int
    read: int
    has: int
    lacks: int


class Divergence(NamedTuple):
    """The message is listed as a row but not found by the index, or the reverse."""

    message: int
    at: int
    listed: bool


class DoubleAccept(NamedTuple):
    """Two acknowledged compare-and-set writes that expected the same sequence."""

    turn: int
    earlier: int
    expect: int


class Overdue(NamedTuple):
    """A message still there although its retention ended; `renewed` is the last write that restarted it."""

    message: int
    read: int
    renewed: int
    age_s: float


@dataclass
class Evidence:
    header: HistoryHeader
    # One row per turn (an append, save or replace; repeated attempts share it). Columns that are set later
    # (done, state, seen_at, …) may be longer than the others: they are extended ahead, with their defaults.
    turn_session: array[int] = field(default_factory=lambda: array("i"))
    turn_process: array[int] = field(default_factory=lambda: array("q"))
    turn_first: array[int] = field(default_factory=lambda: array("q"))
    turn_invoked: array[int] = field(default_factory=lambda: array("q"))
    turn_done: array[int] = field(default_factory=lambda: array("q"))
    turn_done_s: array[float] = field(default_factory=lambda: array("d"))
    turn_claim: bytearray = field(default_factory=bytearray)
    """How durable the acknowledgement said the turn is, as an index into `CLAIMS`."""
    # One row per message.
    message_turn: array[int] = field(default_factory=lambda: array("i"))
    state: bytearray = field(default_factory=bytearray)
    seen_at: array[int] = field(default_factory=lambda: array("i"))
    entered: array[int] = field(default_factory=lambda: array("i"))
    rank: array[float] = field(default_factory=lambda: array("d"))
    # One row per read that succeeded.
    read_process: array[int] = field(default_factory=lambda: array("q"))
    read_invoked: array[int] = field(default_factory=lambda: array("q"))
    read_done: array[int] = field(default_factory=lambda: array("q"))
    read_size: array[int] = field(default_factory=lambda: array("i"))

    sessions: list[str] = field(default_factory=list)
    odds: OddTable = field(default_factory=OddTable)
    retries: dict[int, int] = field(default_factory=dict)
    contents: dict[int, str] = field(default_factory=dict)
    """By message, what it is besides its text, in words."""
    attempts: dict[int, int] = field(default_factory=dict)
    """How often each retried turn was sent."""
    failed: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    said: dict[int, str] = field(default_factory=dict)
    """By turn that was not acknowledged at once: the name of the latest error."""
    retention: dict[int, Retention] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    parts: dict[int, list[int]] = field(default_factory=dict)
    """By turn, if it is part of one over several sessions: all parts, itself among them."""
    removals: dict[int, int] = field(default_factory=dict)
    """By message, how many saves, replaces and retracts may have removed it on purpose."""
    missing_when_forgotten: set[int] = field(default_factory=set)
    """Messages that the latest read lacked when their session was, or may have been, forgotten."""
    taken_back: dict[int, TakenBack] = field(default_factory=dict)
    """By message, the retract or replace that removed it."""
    removers: dict[int, TakenBack] = field(default_factory=dict)
    """By the event that acknowledged it, every forget, retract and replace."""
    replaced: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By turn of a replace, the messages that it replaces with its own."""
    replace_ended: dict[int, int] = field(default_factory=dict)
    """By turn of a replace in doubt, the event that ended its latest attempt."""
    disturbances: list[Disturbance] = field(default_factory=list)
    session_turns: dict[int, list[int]] | None = None

    absences: list[Absence] = field(default_factory=list)
    losses: list[Loss] | None = None
    fates: dict[int, tuple[Literal["overwritten", "trimmed", "dropped"], int]] | None = None
    """See `culprits`."""
    leaks: list[Sighting] = field(default_factory=list)
    strangers: list[Sighting] = field(default_factory=list)
    altered: list[Sighting] = field(default_factory=list)
    damaged: list[Sighting] = field(default_factory=list)
    repeated: list[Repeat] = field(default_factory=list)
    resurrected: list[tuple[Sighting, int]] = field(default_factory=list)
    overdue: dict[int, Overdue] = field(default_factory=dict)
    inversions: dict[int, Inversion] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)
    regressions: list[Regression] = field(default_factory=list)
    failed_reads: list[FailedRead] = field(default_factory=list)
    first_reads: list[FirstRead] = field(default_factory=list)
    bad_ends: list[BlamedEnd] = field(default_factory=list)
    half_turns: list[HalfTurn] = field(default_factory=list)
    """Also in reads while the turn may still have been in progress; looked for in interleavings only."""
    half_changes: list[HalfChange] = field(default_factory=list)
    """In reads while the change was under way, in any workload."""
    refusals: list[Refusal] = field(default_factory=list)
    outage: Outage | None = None
    hidden: dict[int, Hidden] = field(default_factory=dict)
    fractures: list[Fracture] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    double_accepts: list[DoubleAccept] = field(default_factory=list)
    proven: list[Proven] = field(default_factory=list)
    stops: list[tuple[int, float]] = field(default_factory=list)
    """The event that says that the engine stopped, and when it was last known to run. It died between the two, and on a
    busy machine the event comes late."""
    sync_s: float = 0.0
    """The longest sync that was recorded."""
    gone_before: dict[int, int] = field(default_factory=dict)
    last_ok_read: dict[int, int] = field(default_factory=dict)
    last_whole_read: dict[int, int] = field(default_factory=dict)
    """By session; `NEVER` if the latest one may have shown a part only."""

    events: int = 0
    ok_ops: int = 0
    acked: int = 0
    kept: int = 0
    unchecked: int = 0
    unknown_outcomes: int = 0
    failed_outcomes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    stopped: str = ""
    """Why the run was stopped early, if it was."""
    uncertain_forgets: int = 0
    ended: bool = False
    """The end of the run is on record, whether it was stopped or not."""
    truncated: bool = False
    """The end of the history is missing."""
    operations: set[str] = field(default_factory=set)  # the rarer ones that were acknowledged
    has_batches: bool = False
    injected: set[str] = field(default_factory=set)
    details: set[tuple[str, str]] = field(default_factory=set)
    """Faults, with what was noted when they were injected."""

    def acknowledged(self, message: int) -> int:
        """Index of the acknowledgement, or NEVER."""
        return self.turn_done[self.message_turn[message]]

    def session_of(self, message: int) -> int:
        return self.turn_session[self.message_turn[message]]

    def writer_of(self, message: int) -> int:
        return self.turn_process[self.message_turn[message]]

    def turn_messages(self, turn: int) -> range:
        first = self.turn_first[turn]
        last = self.turn_first[turn + 1] if turn + 1 < len(self.turn_first) else len(self.message_turn)
        return range(first, last)

    def turns_of(self, session: int) -> list[int]:
        """The turns of a session, oldest first. Built on first use: only suspicious histories need it."""
        if self.session_turns is None:
            grouped: dict[int, list[int]] = defaultdict(list)
            for turn, owner in enumerate(self.turn_session):
                grouped[owner].append(turn)
            self.session_turns = grouped
        return self.session_turns.get(session, [])

    def disturbance_between(self, start: int, end: int) -> Disturbance | None:
        """The first disturbance that was active at some event after `start` and before `end`."""
        last = bisect_right(self.disturbances, end, key=lambda found: found.injected)
        for found in self.disturbances[:last]:
            if found.healed > start:
                return found
        return None

    def struck(self, disturbance: Disturbance) -> int:
        """The event from which it may have taken data: the engine's first stop while it lasted, else its injection.

        For a lasting fault it is always the injection: the engine may have died by itself before that stop.
        """
        return disturbance.injected if disturbance.name in LASTING else self.stopped_during(disturbance)

    def stopped_during(self, disturbance: Disturbance) -> int:
        """The engine's first stop while it lasted, else its injection."""
        for index, _ in self.stops:
            if disturbance.injected <= index <= disturbance.healed:
                return index
        return disturbance.injected

    def only_clocks_between(self, start: int, end: int) -> bool:
        """Whether the clock was tampered with, and nothing else disturbed the engine."""
        names = {found.name for found in self.disturbances if found.injected <= end and found.healed > start}
        return bool(names) and names <= CLOCK_FAULTS

    def moment_s(self, disturbance: Disturbance, since: int, read: int) -> float:
        """When the loss happened at the earliest: by the engine's first stop after `since`, else when the fault struck.

        Under a lasting fault it may have been at any time; the earliest counts, so that nobody is accused wrongly.
        """
        if disturbance.name in LASTING:
            return disturbance.injected_s
        for index, time_s in self.stops:
            if since < index < self.read_done[read]:
                return time_s
        return disturbance.injected_s
