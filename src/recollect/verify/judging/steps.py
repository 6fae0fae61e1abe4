"""A run step by step: who did what in the session of a witness, in the order in which it ended.

Made for the smallest run that shows something, where every step fits. Of a longer run it shows the steps that the
witness names and those next to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import zip_longest

import msgspec

from recollect.verify.judging.detection import name_of
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.op import (
    Context,
    Event,
    OddElement,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    Seen,
    WriteAsked,
    client_of,
)
from recollect.verify.judging.read_deltas import OddTable, View, chain_of, count_of, from_runs
from recollect.verify.judging.verdict import WitnessEvents

STEPS_MAX = 12
NAMES_MAX = 4
ERROR_CHARACTERS = 60
EVERYONE = -1
"""The process number of a step that no client took: a fault, or a gap."""


class StepTaken(msgspec.Struct, frozen=True):
    """One operation, or something that happened to the engine. `told` marks a step that the witness names."""

    process: int
    text: str
    told: bool = False
    left_out: int = 0
    """If this is a gap: how many steps it stands for."""

    @property
    def is_outside(self) -> bool:
        """Whether it happened to the engine."""
        return self.process == EVERYONE and not self.left_out


class _Happening(msgspec.Struct):
    """A step with its first and last event; `asks` says what was asked."""

    step: StepTaken
    session: str
    begun: int
    ended: int
    asks: str = ""


def steps_of(
    history: AnyHistory, witness: WitnessEvents, steps_max: int = STEPS_MAX
) -> tuple[StepTaken, ...]:
    """What happened in the witness's session, in about `steps_max` steps at most."""
    events = (*witness.events, witness.acknowledged, witness.fault_event)
    named = {event for event in events if event is not None}
    found = [row for row in _rows(history, named) if row.session in ("", witness.session) or row.step.told]
    if len({row.session for row in found} - {"", witness.session}):
        found = [_placed(row) for row in found]
    return shortened(_repeated(_with_beginnings(found)), steps_max)


def _repeated(steps: Sequence[StepTaken]) -> list[StepTaken]:
    """Somebody who does the same again and again, with the same outcome and nobody in between, takes one step."""
    told: list[StepTaken] = []
    times = 1
    for step, following in zip_longest(steps, steps[1:]):
        if step == following:
            times += 1
            continue
        if times == 1:
            told.append(step)
        else:
            told.append(msgspec.structs.replace(step, text=f"{step.text} ({times:,} times)"))
        times = 1
    return told


def _placed(row: _Happening) -> _Happening:
    """Adds the session's id; used when the witness names more than one session."""
    if not row.session:
        return row
    step = StepTaken(row.step.process, f'{row.step.text} in "{row.session}"', row.step.told)
    return msgspec.structs.replace(row, step=step)


def _with_beginnings(found: list[_Happening]) -> list[StepTaken]:
    """Steps in the order in which they ended. If another ended in the middle of one, its beginning is a step too."""
    placed: list[tuple[int, StepTaken]] = []
    ends = [row.ended for row in found if row.step.process != EVERYONE]
    for row in found:
        placed.append((row.ended, row.step))
        if row.asks and any(row.begun < end < row.ended for end in ends):
            placed.append((row.begun, StepTaken(row.step.process, _beginning(row.asks))))
    return [step for _, step in sorted(placed, key=lambda item: item[0])]


def _beginning(asks: str) -> str:
    verb, _, rest = asks.partition(" ")
    doing = {
        "reads": "reading",
        "saves": "saving",
        "appends": "appending",
        "replaces": "replacing",
        "retracts": "retracting",
        "forgets": "forgetting",
        "forks": "forking",
    }
    return " ".join(filter(None, ("starts", doing.get(verb, verb), rest)))


def _rows(history: AnyHistory, named: set[int]) -> Iterable[_Happening]:
    asked: dict[int, Event] = {}
    abilities = history.header.abilities
    narrator = _Narrator(limits=abilities is None or "last" in abilities, named=named)
    last = 0
    for event in history:
        last = event.index
        if event.kind == "invoke":
            asked[event.process] = event
        elif event.process >= 0:
            begun = asked.pop(event.process)
            told = not named.isdisjoint((begun.index, event.index))
            who = EVERYONE if isinstance(event.value, RowsCounted) else client_of(event.process)
            asks = narrator.asks(begun)
            step = StepTaken(who, narrator.told(begun, event), told)
            yield _Happening(step, begun.session, begun.index, event.index, asks)
        elif (happened := _happened(event)) is not None:
            yield _Happening(
                StepTaken(EVERYONE, happened, event.index in named), "", event.index, event.index
            )
    for begun in asked.values():
        asks = narrator.asks(begun)
        step = StepTaken(client_of(begun.process), f"{asks}: no answer", begun.index in named)
        yield _Happening(step, begun.session, begun.index, last + 1, asks)


def _happened(event: Event) -> str | None:
    match event.kind:
        case "fault-injected":
            return None if event.operation in ("none", "concurrent-writers") else event.operation
        case "engine-stopped":
            return "the engine is down"
        case "engine-started":
            return "the engine is up again"
        case "engine-refused":
            return f"the engine refuses to start: {_short(event.error or '')}"
        case _:
            return None


class _Narrator:
    """Puts operations into words. It remembers what was read last: reads are saved as differences."""

    def __init__(self, *, limits: bool, named: Set[int]) -> None:
        self._limits = limits
        """Whether the store's reads take a limit; without it, a read of the last n is one of everything."""
        self._named = named
        """Events that the witness names."""
        self._written: set[int] = set()
        """The messages of the writes among them: these are what a long read is looked at for."""
        self._odd = OddTable()
        self._views: dict[tuple[str, int], View] = {}
        self._latest: dict[tuple[int, str], tuple[int, View]] = {}
        """What each process last read of a session, and the event that ended the read."""

    def told(self, begun: Event, ended: Event) -> str:
        """An operation and its end."""
        value, asks = ended.value, self.asks(begun)
        if isinstance(begun.value, WriteAsked) and not self._named.isdisjoint((begun.index, ended.index)):
            self._written |= set(_new_of(begun.value))
        if ended.kind == "fail":
            return f"{asks}: error, {_short(ended.error or 'unnamed')}"
        if ended.kind == "unknown":
            return f"{asks}: no answer"
        if isinstance(value, Seen):
            ask = begun.value if isinstance(begun.value, ReadAsked) else None
            return f"{asks}: {_listed(self._view(begun, ended, ask, value), self._odd, self._written)}"
        if isinstance(value, Context) and value.parts:
            # Its first part counts as a read of the session: later reads are saved as differences from it.
            self._view(begun, ended, value.parts[0].ask, value.parts[0].seen)
        if isinstance(value, RowsCounted):
            return f"the engine has {_counted(value.rows)}"
        return asks

    def _view(self, begun: Event, ended: Event, ask: ReadAsked | None, seen: Seen) -> View:
        key = (begun.session, chain_of(ask, count_of(seen)))
        view = self._views[key] = self._odd.decode(self._views.get(key, []), seen)
        self._latest[begun.process, begun.session] = (ended.index, view)
        return view

    def asks(self, begun: Event) -> str:
        value = begun.value
        if isinstance(value, WriteAsked):
            return self._writes(begun, value)
        if isinstance(value, RetractAsked):
            return f"retracts {_names(from_runs(value.messages))}" + _expecting(value.expect)
        if isinstance(value, ReadAsked) and value.last is not None and self._limits:
            return f"reads the last {value.last}"
        if isinstance(value, ReadAsked) and value.after is not None:
            return f"reads after {name_of(value.after)}"
        return {"forget": "forgets the session", "context": "reads a context", "search": "searches"}.get(
            begun.operation, "reads"
        )

    def _writes(self, begun: Event, write: WriteAsked) -> str:
        new = list(_new_of(write))
        if begun.operation == "replace":
            dropped = _names(from_runs(write.dropped)) or "nothing"
            return f"replaces {dropped} with {_names(new)}" + _expecting(write.expect)
        if begun.operation != "save":
            if write.copied is not None:
                return f'forks "{write.copied}" as {_names(new)}'
            spanning = "" if write.spans is None else ", part of a turn over several sessions"
            what = f" ({write.contents[0]})" if len(new) == 1 and write.contents else ""
            return f"appends {_names(new)}{what}" + _expecting(write.expect) + spanning
        event, list_read = self._latest.get((begun.process, begun.session), (None, []))
        if event is None or event != write.base:
            return f"saves its list with {_names(new)}"
        left_out = set(from_runs(write.dropped))
        return f"saves {_names([number for number in list_read if number >= 0 and number not in left_out] + new)}"


def _counted(rows: int) -> str:
    """Messages are looked for by their text: one that the store encrypts or compresses may be there unseen."""
    return f"{rows} message{'s'[: rows != 1]}" if rows else "no message in plain text"


def _expecting(position: int | None) -> str:
    return "" if position is None else f", expecting {position}"


def _new_of(write: WriteAsked) -> range:
    return range(write.first, write.first + len(write.checksums))


def _listed(view: View, odd: OddTable, looked_for: Set[int]) -> str:
    if not view:
        return "nothing"
    whole = [number for number in view if number >= 0]
    strange = [odd[number] for number in view if number < 0]
    parts = [_names(whole, looked_for)] if whole else []
    parts += [_strange(found) for found in strange[:2]]
    if len(strange) > 2:
        parts.append(f"{len(strange) - 2} more that nobody wrote that way")
    return ", ".join(parts)


def _strange(found: OddElement) -> str:
    if found.damaged:
        return "one that the store calls damaged"
    if found.message is not None:
        return f"{name_of(found.message)} changed"
    return f"{_short(found.text)!r}"


def _names(numbers: Sequence[int], looked_for: Set[int] = frozenset()) -> str:
    """``m0, m1, m4…m9``: a run of three or more is shortened to its ends, and a long list to its beginning, its end and
    what is looked for in it."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [
        f"{name_of(run[0])}…{name_of(run[-1])}" if len(run) > 2 else ", ".join(map(name_of, run))
        for run in runs
    ]
    if len(told) <= NAMES_MAX:
        return ", ".join(told)
    sought = [place for place, run in enumerate(runs) if not looked_for.isdisjoint(run)][:NAMES_MAX]
    first = range(max(1, NAMES_MAX - 1 - len(sought)))
    kept = sorted({*first, *sought, len(told) - 1})
    gaps = ["… " if place and place - 1 not in kept else "" for place in kept]
    return ", ".join(gap + told[place] for gap, place in zip(gaps, kept, strict=True)) + f" ({len(numbers)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= ERROR_CHARACTERS else f"{line[:ERROR_CHARACTERS]}…"


def shortened(steps: Sequence[StepTaken], steps_max: int = STEPS_MAX) -> tuple[StepTaken, ...]:
    """The steps that the witness names and those nearest to them; the gaps say how many are left out. What happened to
    the engine before them is among them: without it, a fault that came later would look like the cause."""
    if len(steps) <= steps_max + 2:  # a line saying that steps are left out would take as much room
        return tuple(steps)
    anchors = [place for place, step in enumerate(steps) if step.told] or [len(steps) - 1]
    by_distance = sorted(range(len(steps)), key=lambda place: min(abs(place - anchor) for anchor in anchors))
    struck = [place for place in range(anchors[-1]) if steps[place].is_outside][-1:]
    kept = {*struck, *[place for place in by_distance if place not in struck][: steps_max - len(struck)]}
    shown: list[StepTaken] = []
    left_out = 0
    for place, step in enumerate(steps):
        if place not in kept or step.left_out:
            left_out += step.left_out or 1
            continue
        shown += [_gap(left_out, "more" if shown else "earlier"), step] if left_out else [step]
        left_out = 0
    return (*shown, _gap(left_out)) if left_out else tuple(shown)


def _gap(count: int, which: str = "more") -> StepTaken:
    return StepTaken(EVERYONE, f"… {count} {which} step{'s'[: count > 1]} …", left_out=count)
