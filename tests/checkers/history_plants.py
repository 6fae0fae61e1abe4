"""One planted anomaly per history: a correct run, one wrong thing, more of the run, everything read.

Each plant knows which messages it touched, so a test can demand the right name, no other name, and a witness
among those messages. Most plants have several forms, chosen by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from recollect.verify.judging.history import RecordedHistory
from recollect.verify.judging.op import BadEnd, Element, HistoryHeader, ReadAsked, RowsCounted

from .history_simulator import CRASHES, Features, Memory, Simulation, checksum_of, elements


@dataclass(frozen=True)
class Planted:
    """A history with one anomaly; `messages` are those that the witness may name, empty for any."""

    history: RecordedHistory
    name: str
    messages: frozenset[int]


class Plot(Simulation):
    """A simulation that can be made to misbehave."""

    def __init__(self, seed: int, **fixed: object) -> None:
        rng = random.Random(seed)
        features = Features.draw(
            rng, **{"sessions": rng.randint(2, 4), "processes": rng.randint(2, 6), "changes": False} | fixed
        )
        features.steps = min(features.steps, 150)
        super().__init__(rng, features, HistoryHeader(recollect="0.1.0", engine="redis", policy="aof-always"))
        self.victim: Memory = self.rng.choice(self.memories)
        # After a forget of unknown outcome nothing can be said about its session.
        self.sure_forgets = True

    def prologue(self, turns: int = 3, count: int = 1) -> list[list[int]]:
        """Noise, then a quiet moment in which the victim gets some acknowledged turns, read by everyone."""
        self.run()
        self.calm()
        if self.victim.log and self.rng.random() < 0.5:
            self.victim.log.clear()
            # What is cleared here must be accounted for: a forget does it in the open.
            self.forget_now(self.victim)
        turns_written = [self.append_now(self.pick(), self.victim, count) for _ in range(turns)]
        other = self.other()
        self.append_now(self.pick(), other)
        if self.rng.random() < 0.7:
            self.read_all()
        return turns_written

    def calm(self) -> None:
        self.quiesce()
        self.limbo.clear()
        self.in_doubt.clear()

    def pick(self) -> int:
        return self.rng.choice(self.processes)

    def other(self) -> Memory:
        return self.rng.choice([memory for memory in self.memories if memory is not self.victim])

    def forget_now(self, memory: Memory) -> None:
        process = self.pick()
        self.tick()
        self.writer.invoke(process, memory.name, "forget")
        self.tick()
        memory.log.clear()
        self.writer.ok(process)

    def crash_now(self, name: str | None = None) -> None:
        self.crash(name or self.rng.choice(CRASHES))
        for op in list(self.open.values()):
            self.complete(op, "unknown")
        self.tick()
        self.heal()

    def read_as(
        self, process: int, memory: Memory, shown: list[Element], ask: ReadAsked | None = None
    ) -> None:
        """A read that returns what it is told to."""
        self.tick()
        self.writer.invoke_read(process, memory.name, ask)
        self.tick()
        self.writer.ok_read(process, shown)

    def epilogue(self, *, noise: bool = True) -> RecordedHistory:
        """Everything is read, the run goes on without further faults, everything is read again."""
        self.read_all()
        if noise:
            self.features.faults = False
            self.features.forgets = False
            self.features.saves = False
            self.run(self.rng.randint(0, 60))
            self.calm()
            self.read_all()
        return self.history()

    def plant(self, name: str, messages: list[int], *, noise: bool = True) -> Planted:
        return Planted(self.epilogue(noise=noise), name, frozenset(messages))


def refuses_to_start(seed: int) -> Planted:
    plot = Plot(seed)
    plot.prologue()
    plot.crash(plot.rng.choice(CRASHES))
    plot.tick()
    plot.writer.engine_refused("bad file format")
    return Planted(plot.history(), "refuses-to-start", frozenset())


def unreadable(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    if plot.rng.random() < 0.5:
        plot.crash_now()
    for _ in range(plot.rng.randint(1, 3)):
        process = plot.pick()
        plot.tick()
        plot.writer.invoke_read(process, plot.victim.name)
        plot.tick()
        plot.writer.fail(process, "ValueError: unknown role 'tool'")
    for_good = plot.rng.random() < 0.5
    if for_good:
        plot.memories.remove(plot.victim)
    return plot.plant("unreadable", [])


def does_not_recover(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    plot.crash_now()
    for _ in range(plot.rng.randint(5, 20)):
        op = plot.invoke_append(plot.pick(), plot.victim, 1)
        plot.now_s += 1.0
        plot.complete(op, "fail")
    plot.read_all()
    return Planted(plot.history(), "does-not-recover", frozenset())


def silent_reset(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None, unknowns=0.0, faults=False)
    plot.prologue()
    disturbed = plot.rng.random() < 0.7
    if disturbed:
        plot.crash_now()
    else:
        plot.read_all()  # what nobody saw cannot be reset
    gone = [message for memory in plot.memories for message in memory.log if message in plot.acked]
    for memory in plot.memories:
        memory.log.clear()
    if disturbed and plot.rng.random() < 0.3:
        plot.append_now(plot.pick(), plot.victim)  # a wiped memory that is written to again
    return plot.plant("silent-reset", gone, noise=disturbed)


def hidden(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None, unknowns=0.0, faults=False)
    turns = plot.prologue(turns=4)
    rows = list(plot.victim.log)
    concealed = plot.rng.sample([m for turn in turns for m in turn], plot.rng.randint(1, 3))
    plot.victim.log = [message for message in rows if message not in concealed]
    if plot.rng.random() < 0.5:
        plot.crash_now()
    plot.read_now(plot.pick(), plot.victim)
    process = plot.pick()
    plot.tick()
    plot.writer.invoke(process, plot.victim.name, "count")
    plot.tick()
    plot.writer.ok(process, RowsCounted(len(rows)))
    return plot.plant("hidden", concealed, noise=False)


def cross_session_leak(seed: int) -> Planted:
    plot = Plot(seed)
    plot.prologue()
    other = plot.other()
    stranger = plot.append_now(plot.pick(), other)[0]
    shown = elements(plot.victim.log)
    odd = plot.rng.random() < 0.3
    leaked = Element(stranger, checksum_of(stranger) + odd)
    shown.insert(plot.rng.randint(0, len(shown)), leaked)
    plot.read_as(plot.pick(), plot.victim, shown)
    return plot.plant("cross-session-leak", [stranger])


def corrupted(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    message = plot.rng.choice([m for m in plot.victim.log if m in plot.acked])
    place = plot.victim.log.index(message)
    shown = elements(plot.victim.log)
    form = plot.rng.randrange(3)
    if form == 0:
        shown[place] = Element(message, checksum_of(message) + 1)
    elif form == 1:
        shown[place] = Element(message, None, damaged=True)
    else:
        shown[place] = Element(None, None, damaged=True, text="\\x00\\x00")
    for _ in range(plot.rng.randint(1, 3)):
        plot.read_as(plot.pick(), plot.victim, shown)
    return plot.plant("corrupted", [message])


def phantom(seed: int) -> Planted:
    plot = Plot(seed)
    plot.prologue()
    shown = elements(plot.victim.log)
    ghost = plot.rng.choice(
        (Element(None, None, text="never said"), Element(plot.writer.messages + 7, 5), Element(-4, 1))
    )
    shown.insert(plot.rng.randint(0, len(shown)), ghost)
    plot.read_as(plot.pick(), plot.victim, shown)
    return plot.plant("phantom", [])


def dirty_read(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    process = plot.pick()
    op = plot.invoke_append(process, plot.victim, plot.rng.randint(1, 3))
    assert op.write is not None
    before = plot.rng.random() < 0.5 and len(plot.processes) > 1
    plot.apply(op)
    if before:  # seen while in flight, refused afterwards
        plot.read_now(next(p for p in plot.processes if p != process), plot.victim)
    plot.tick()
    plot.complete(op, "fail")
    plot.read_now(process, plot.victim)
    first = op.write.first
    return plot.plant("dirty-read", list(range(first, first + len(op.write.checksums))))


def duplicate(seed: int) -> Planted:
    plot = Plot(seed)
    turns = plot.prologue()
    message = plot.rng.choice(turns)[0]
    if message not in plot.victim.log:  # expired meanwhile
        message = plot.append_now(plot.pick(), plot.victim)[0]
    place = plot.victim.log.index(message)
    doubled = list(plot.victim.log)
    doubled.insert(plot.rng.randint(place + 1, len(doubled)), message)
    for_good = plot.rng.random() < 0.5
    if for_good and plot.features.retention_s is None:
        plot.victim.log = doubled
    plot.read_as(plot.pick(), plot.victim, elements(doubled))
    return plot.plant("duplicate", [message])


def lost_update(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue(turns=4)
    if plot.rng.random() < 0.25:
        return _both_compare_and_set(plot)
    both = [plot.invoke_append(process, plot.victim, 1) for process in plot.rng.sample(plot.processes, 2)]
    for op in both:
        plot.tick()
        plot.apply(op)
    lost = plot.victim.log[-2]
    idle = [process for process in plot.processes if process not in plot.open]
    if idle and plot.rng.random() < 0.5:  # it is there for a moment
        plot.read_now(plot.rng.choice(idle), plot.victim)
    plot.victim.log.remove(lost)
    for op in plot.rng.sample(both, 2):
        plot.tick()
        plot.complete(op, "ok")
    plot.read_now(plot.pick(), plot.victim)
    return plot.plant("lost-update", [lost])


def trimmed(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None, unknowns=0.0, faults=False)
    turns = plot.prologue(turns=4)
    plot.read_all()
    cut = plot.victim.log.index(turns[plot.rng.randint(1, 3)][0])
    lost, plot.victim.log = [m for m in plot.victim.log[:cut] if m in plot.acked], plot.victim.log[cut:]
    plot.read_now(plot.pick(), plot.victim)
    return plot.plant("trimmed", lost)


def dropped(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue(turns=4)
    lost = plot.append_now(plot.pick(), plot.victim, plot.rng.randint(1, 3))
    if plot.rng.random() < 0.5:
        plot.append_now(plot.pick(), plot.victim)
    lost = lost if plot.rng.random() < 0.7 else [plot.rng.choice(lost)]
    plot.victim.log = [message for message in plot.victim.log if message not in lost]
    plot.read_now(plot.pick(), plot.victim)
    return plot.plant("dropped", lost)


def _both_compare_and_set(plot: Plot) -> Planted:
    expect = plot.victim.sequence
    written: list[int] = []
    for process in plot.rng.sample(plot.processes, 2):
        write = plot.new_write(process, 1, expect)
        op = plot.invoke_write(process, plot.victim, "append", write)
        plot.tick()
        op.result = "applied"
        plot.victim.log.append(write.first)
        plot.victim.sequence += 1
        plot.complete(op, "ok")
        written.append(write.first)
    return plot.plant("lost-update", written[1:])


def torn_turn(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    count = plot.rng.randint(2, 4)
    if plot.rng.random() < 0.5:
        turn = plot.append_now(plot.pick(), plot.victim, count)
        torn = plot.rng.sample(turn, plot.rng.randint(1, count - 1))
        plot.crash_now()
    else:  # the client dies in the middle of a turn: nobody was told that it worked
        process = plot.pick()
        op = plot.invoke_append(process, plot.victim, count)
        assert op.write is not None
        turn = list(range(op.write.first, op.write.first + count))
        torn = turn[plot.rng.randint(1, count - 1) :]
        plot.apply(op)
        plot.writer.fault_injected("kill-app")
        plot.tick()
        plot.complete(op, "unknown")
        plot.in_doubt.clear()
        plot.writer.fault_healed("kill-app")
    plot.victim.log = [message for message in plot.victim.log if message not in torn]
    return plot.plant("torn-turn", torn)


def lost_tail(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    turns = plot.prologue(turns=plot.rng.randint(2, 6), count=plot.rng.randint(1, 2))
    plot.append_now(plot.pick(), plot.other())
    keep = plot.rng.randint(0, len(turns) - 1)
    lost = [message for turn in turns[keep:] for message in turn]
    plot.crash_now()
    plot.victim.log = [message for message in plot.victim.log if message not in lost]
    return plot.plant("lost-tail", lost)


def hole(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    turns = plot.prologue(turns=plot.rng.randint(3, 6), count=plot.rng.randint(1, 2))
    start = plot.rng.randint(0, len(turns) - 2)
    lost = [
        message for turn in turns[start : plot.rng.randint(start + 1, len(turns) - 1)] for message in turn
    ]
    plot.crash_now()
    plot.victim.log = [message for message in plot.victim.log if message not in lost]
    return plot.plant("hole", lost)


def reorder(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    turns = plot.prologue(turns=3, count=2)
    form = plot.rng.randrange(3)
    if form == 0:  # for good: two appends that did not overlap
        first, second = plot.rng.sample(range(3), 2)
        pair = (turns[first][0], turns[second][0])
    elif form == 1:  # for good: inside one turn
        left, right = plot.rng.choice(turns)
        pair = (left, right)
    else:
        return _reads_disagree(plot)
    log = plot.victim.log
    places = sorted((log.index(pair[0]), log.index(pair[1])))
    log[places[0]], log[places[1]] = log[places[1]], log[places[0]]
    between = log[places[0] : places[1] + 1]
    return plot.plant("reorder", between)


def _reads_disagree(plot: Plot) -> Planted:
    """Two overlapping appends, which may come in either order, but in the same one for everybody."""
    left, right = plot.rng.sample(plot.processes, 2)
    ops = [plot.invoke_append(process, plot.victim, 1) for process in (left, right)]
    plot.rng.shuffle(ops)
    for op in ops:
        plot.tick()
        plot.apply(op)
    for op in ops:
        plot.complete(op, "ok")
    plot.read_now(plot.pick(), plot.victim)
    log = plot.victim.log
    swapped = [*log[:-2], log[-1], log[-2]]
    plot.read_as(plot.pick(), plot.victim, elements(swapped))
    return plot.plant("reorder", log[-2:])


def fractured_read(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    process, writer = plot.rng.sample(plot.processes, 2)
    plot.tick()
    plot.writer.invoke(process, plot.victim.name, "context")
    before = list(plot.victim.log)
    op = plot.invoke_append(writer, plot.victim, plot.rng.randint(1, 2))
    plot.tick()
    plot.apply(op)
    after = list(plot.victim.log)
    plot.complete(op, "ok")
    new = after[len(before) :]
    last = ReadAsked(last=plot.rng.randint(len(new), len(after) - 1))
    assert last.last is not None
    statements = plot.rng.choice(
        (
            [(ReadAsked(), before), (ReadAsked(), after)],
            [(ReadAsked(), before), (last, after[-last.last :])],
            [(last, after[-last.last :]), (ReadAsked(), before)],
            [(ReadAsked(after=before[-1]), []), (ReadAsked(), after)],
        )
    )
    plot.tick()
    plot.writer.ok_context(process, [(ask, elements(seen)) for ask, seen in statements])
    return plot.plant("fractured-read", new)


def _old_state(plot: Plot, *, own: bool) -> Planted:
    plot.prologue()
    writer, reader = plot.rng.sample(plot.processes, 2)
    if own:
        reader = writer
    before = list(plot.victim.log)
    late = plot.append_now(writer, plot.victim, plot.rng.randint(1, 3))
    if plot.rng.random() < 0.5:
        plot.read_now(plot.pick(), plot.victim)
    ask = None
    if plot.rng.random() < 0.3 and before:
        ask = ReadAsked(after=before[-1])
        plot.read_as(reader, plot.victim, [], ask)
    else:
        plot.read_as(reader, plot.victim, elements(before))
    return plot.plant("own-write-missing" if own else "stale-read", late)


def stale_read(seed: int) -> Planted:
    return _old_state(Plot(seed, retention_s=None), own=False)


def own_write_missing(seed: int) -> Planted:
    return _old_state(Plot(seed, retention_s=None), own=True)


def non_monotonic_read(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    writer, reader = plot.rng.sample(plot.processes, 2)
    before = list(plot.victim.log)
    op = plot.invoke_append(writer, plot.victim, plot.rng.randint(1, 2))
    plot.tick()
    plot.apply(op)
    new = plot.victim.log[len(before) :]
    plot.read_now(reader, plot.victim)
    third = [process for process in plot.processes if process not in (writer, reader)]
    if third and plot.rng.random() < 0.5:  # somebody else, who never saw it, does not see it: no harm
        plot.read_as(third[0], plot.victim, elements(before))
    plot.read_as(reader, plot.victim, elements(before))
    if plot.rng.random() < 0.5:
        plot.complete(op, "ok")
    else:
        plot.complete(op, "unknown")
        plot.in_doubt.clear()
        if plot.rng.random() < 0.5:
            plot.victim.log = before
    return plot.plant("non-monotonic-read", new)


def resurrected(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    plot.prologue()
    before = list(plot.victim.log)
    plot.rng.choice((plot.forget_now, plot.retract_now))(plot.victim)
    back = plot.rng.sample(before, plot.rng.randint(1, len(before)))
    back = [message for message in before if message in back and message in plot.acked]
    back = back or [message for message in before if message in plot.acked][:1]
    if plot.rng.random() < 0.5:
        plot.read_now(plot.pick(), plot.victim)  # it was really gone
    if plot.rng.random() < 0.3:
        plot.crash_now()
    plot.victim.log = back + plot.victim.log
    if plot.rng.random() < 0.5:
        plot.append_now(plot.pick(), plot.victim)
    return plot.plant("resurrected", back)


def expired_early(seed: int) -> Planted:
    rng = random.Random(seed)
    refresh = rng.choice(("append", "read", "never", "message"))
    retention_s = rng.choice((600.0, 1000.0, None))
    plot = Plot(seed, retention_s=retention_s, refresh=refresh, faults=False, unknowns=0.0)
    plot.prologue()
    lost = [message for message in plot.victim.log if message in plot.acked]
    if retention_s is None or rng.random() < 0.7:
        plot.move_clock(rng.uniform(30.0, 400.0))
        if rng.random() < 0.3:
            for memory in plot.memories:  # every session, as an expiry of five minutes would
                lost += [message for message in memory.log if message in plot.acked]
                memory.log.clear()
    plot.victim.log.clear()
    plot.read_all()
    return plot.plant("expired-early", lost)


def never_expired(seed: int) -> Planted:
    rng = random.Random(seed)
    refresh = rng.choice(("append", "read", "never", "message"))
    plot = Plot(seed, retention_s=60.0, refresh=refresh, faults=False, unknowns=0.0)
    plot.prologue()
    stayed = list(plot.victim.log)
    for memory in plot.memories:  # the others behave
        if memory is plot.victim:
            memory.expires_s = None
            memory.message_expires_s.clear()
    if rng.random() < 0.5:
        plot.move_clock(rng.uniform(61.0, 400.0))
    else:
        plot.now_s += rng.uniform(61.0, 400.0)
    plot.read_as(plot.pick(), plot.victim, elements(stayed))
    plot.victim.log.clear()
    return plot.plant("never-expired", stayed)


def index_divergence(seed: int) -> Planted:
    plot = Plot(seed, retention_s=None)
    turns = plot.prologue(turns=4)
    message = plot.rng.choice(turns)[0]
    listed, found = list(plot.victim.log), list(plot.victim.log)
    form = plot.rng.randrange(3)
    if form == 0:
        found.remove(message)
    elif form == 1:
        listed.remove(message)
    else:
        plot.forget_now(plot.victim)
        listed, found = [], [message]
    process = plot.pick()
    plot.tick()
    plot.writer.invoke(process, plot.victim.name, "search")
    plot.tick()
    plot.writer.ok_search(process, listed, found)
    return plot.plant("index-divergence", [message])


def _ended(seed: int, how: Literal["raised", "hang"]) -> Planted:
    """Where every step is chosen, an operation ends as nothing excuses."""
    plot = Plot(seed, faults=False, retention_s=None, unknowns=0.0)
    plot.prologue()
    for _ in range(plot.rng.randint(1, 3)):
        process = plot.pick()
        plot.tick()
        plot.writer.invoke_read(process, plot.victim.name)
        plot.tick()
        plot.writer.unknown(process, "RuntimeError: another coroutine is reading", BadEnd(how))
    return plot.plant(how, [])


def raised(seed: int) -> Planted:
    return _ended(seed, "raised")


def hang(seed: int) -> Planted:
    return _ended(seed, "hang")


PLANTS: dict[str, Callable[[int], Planted]] = {
    "refuses-to-start": refuses_to_start,
    "unreadable": unreadable,
    "does-not-recover": does_not_recover,
    "silent-reset": silent_reset,
    "lost-update": lost_update,
    "hidden": hidden,
    "cross-session-leak": cross_session_leak,
    "corrupted": corrupted,
    "phantom": phantom,
    "dirty-read": dirty_read,
    "duplicate": duplicate,
    "trimmed": trimmed,
    "dropped": dropped,
    "torn-turn": torn_turn,
    "lost-tail": lost_tail,
    "hole": hole,
    "reorder": reorder,
    "fractured-read": fractured_read,
    "stale-read": stale_read,
    "own-write-missing": own_write_missing,
    "non-monotonic-read": non_monotonic_read,
    "resurrected": resurrected,
    "expired-early": expired_early,
    "never-expired": never_expired,
    "index-divergence": index_divergence,
    "raised": raised,
    "hang": hang,
}
