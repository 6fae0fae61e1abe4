"""A failing schedule for people: one sentence, columns of text, and the same as SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from recollect.printable import counted
from recollect.verify.explore.interleavings.footprints import GIVES_BACK
from recollect.verify.explore.interleavings.program import ClientsProgram
from recollect.verify.explore.interleavings.results import FailedSchedule
from recollect.verify.explore.interleavings.world import LoggedStep
from recollect.verify.judging.steps import EVERYONE, StepTaken, shortened

WIDTH = 46
LABEL_MIN, LABEL_MAX = 10, 34
LATER = "later"
"""The process that read afterwards."""


class _PictureRow(NamedTuple):
    """One line of the picture. `kind`: `call`, `answer`, `wrote`, `read`, `asked`, `line` or `note`."""

    actor: str
    kind: str
    text: str


def _rows(steps: Sequence[LoggedStep]) -> list[_PictureRow]:
    """The rows in the order in which things happened; replies that change nothing are left out."""
    found: list[_PictureRow] = []
    for actor, kind, label, told in filter(_is_of_the_store, steps):
        if kind == "begin":
            found.append(_PictureRow(actor, "call", label))
        elif kind == "end":
            found.append(_PictureRow(actor, "answer", f"→ {label}"))
        elif kind == "arrive" and label != "prepare":
            way = "wrote" if told.startswith("writes") else "read" if told.startswith("reads") else "asked"
            found.append(_PictureRow(actor, way, _with_what_it_did(label, told)))
        elif kind == "line":
            _add_line(found, actor, label)
        elif kind == "cancel":
            found.append(_PictureRow(actor, "bad", f"✗ cancelled {label}".rstrip()))
        elif kind in ("blocked", "unblocked", "hang", "timer"):
            told = {"blocked": f"(waits in the engine: {_short(label)})", "unblocked": "(goes on)"}.get(
                kind, label
            )
            found.append(_PictureRow(actor, "bad" if kind == "hang" else "note", told))
    return found


def _is_of_the_store(step: LoggedStep) -> bool:
    """A pool that resets a connection does nothing that a reader of the store's code would look for."""
    return not step.label.lower().startswith(GIVES_BACK)


def _add_line(found: list[_PictureRow], actor: str, label: str) -> None:
    """Lines of code that one thread ran in one go are one row."""
    file, _, number = label.rpartition(":")
    if (
        found
        and found[-1].kind == "line"
        and found[-1].actor == actor
        and found[-1].text.startswith(f"{file}:")
    ):
        found[-1] = found[-1]._replace(text=f"{found[-1].text}, {number}")
    else:
        found.append(_PictureRow(actor, "line", label))


def _with_what_it_did(label: str, told: str) -> str:
    """What was asked gives way: which messages it was about must be seen in full, if they fit at all."""
    if not told:
        return _short(label)
    return f"{_short(label, min(LABEL_MAX, max(LABEL_MIN, WIDTH - len(f'  : {told}'))))}: {told}"


def _short(label: str, size: int = LABEL_MAX) -> str:
    return label if len(label) <= size else label[: size - 1] + "…"


# ---- the terminal


def columns(program: str, steps: Sequence[LoggedStep]) -> str:
    """One column for each client, time running downwards; indented lines happen in the engine."""
    names = ClientsProgram.parse(program).names
    place = {name: index for index, name in enumerate(names)}
    lines = [
        "  ".join(name.ljust(WIDTH) for name in names).rstrip(),
        "  ".join("─" * WIDTH for _ in names),
    ]
    for actor, kind, text in _rows(steps):
        if actor == LATER:
            lines.append(f"{'read afterwards by another process':>{WIDTH}}  {text}")
        else:
            indent = "  " if kind in ("wrote", "read", "asked", "line", "note") else ""
            lines.append(" " * (place.get(actor, 0) * (WIDTH + 2)) + (indent + text)[:WIDTH])
    return "\n".join(lines)


def steps_taken(failure: FailedSchedule) -> tuple[StepTaken, ...]:
    """The same columns as a list of steps, in which each client is a process, numbered by its place in the program."""
    names = ClientsProgram.parse(failure.program).names
    place = {name: index for index, name in enumerate(names)}
    taken = [
        StepTaken(place.get(row.actor, EVERYONE), row.text, row.kind == "bad")
        for row in _without_quiet_lines(_rows(failure.steps))
        if row.actor != LATER
    ]
    return tuple(shortened(taken))


def _without_quiet_lines(rows: list[_PictureRow]) -> list[_PictureRow]:
    """Leaves out the lines of operations that nobody else interrupted: they say nothing."""

    def quiet(place: int) -> bool:
        before, row, after = rows[place - 1 : place + 2]
        return (row.kind, before.kind, after.kind, before.actor, after.actor) == (
            *("line", "call", "answer"),
            *(row.actor, row.actor),
        )

    inner = range(1, len(rows) - 1)
    return [row for place, row in enumerate(rows) if place not in inner or not quiet(place)]


# ---- one sentence


def sentence(failure: FailedSchedule) -> str:
    """What happened, in one sentence: "A read nothing; B wrote m1 and was acknowledged; A wrote m0: m1 is gone"."""
    parts: list[str] = []
    steps = [step for step in failure.steps if step.actor != LATER and _is_of_the_store(step)]
    if any(step.kind == "line" for step in steps):
        parts = _told_by_operations(_without_quiet_lines(_rows(steps)))
    else:
        begun: dict[str, str] = {}
        given_up: set[str] = set()
        for step in steps:
            if step.kind == "begin":
                begun[step.actor] = step.label
            elif step.kind == "cancel":
                given_up.update(begun.get(step.actor, "").split()[1:])
            _add_part(parts, step, given_up)
    if parts and (before := ClientsProgram.parse(failure.program).before):
        parts.insert(0, f"{counted(before, 'message')} had been appended")
    if parts and failure.past:
        parts.insert(0, f"the store had been used for {counted(len(failure.past), 'schedule')} before")
    return "; ".join(parts) + f": {conclusion(failure)}" if parts else conclusion(failure)


def _add_part(parts: list[str], step: LoggedStep, given_up: set[str]) -> None:
    """What was given up may still arrive; it is not what its caller does by then."""
    actor, kind, label, told = step
    if kind == "arrive" and told:
        late = told.startswith("writes") and not given_up.isdisjoint(told.split())
        who = f"what {actor} had given up" if late else actor
        parts.append(f"{who} {told.replace('writes', 'wrote').replace('reads', 'read')}")
    elif kind == "cancel":
        parts.append(f"{actor} was cancelled {label}".rstrip())
    elif kind == "hang":
        parts.append(f"{actor} waits for ever")
    elif kind == "end" and label.startswith("ok"):
        if parts and parts[-1].startswith(f"{actor} wrote"):
            parts[-1] += " and was acknowledged"
        else:
            parts.append(f"{actor} was acknowledged")
    elif kind == "end" and label.startswith("["):
        parts.append(f"{actor} got {label}")
    elif kind == "end" and label.startswith("raised"):
        parts.append(f"{actor} {_short(label, 90)}")


_PAST = {"append": "appended", "save": "saved", "forget": "forgot", "read": "read"}


def _told_by_operations(rows: list[_PictureRow]) -> list[str]:
    """For threads, whose steps are lines of code: what each did, and where it was when another came in between."""
    parts: list[tuple[str, list[str]]] = []

    def add(actor: str, text: str) -> None:
        if parts and parts[-1][0] == actor:
            parts[-1][1].append(text)
        else:
            parts.append((actor, [text]))

    waiting: dict[str, str] = {}
    """The operation that each client has begun and not ended."""
    for place, (actor, kind, text) in enumerate(rows):
        following = rows[place + 1] if place + 1 < len(rows) else None
        if kind == "call":
            waiting[actor] = text
            if following is None or (following.actor, following.kind) != (actor, "answer"):
                at = (
                    following.text
                    if following and (following.actor, following.kind) == (actor, "line")
                    else ""
                )
                add(actor, f"began to {text}" + (f" ({at})" if at else ""))
        elif kind == "answer":
            whole = place > 0 and rows[place - 1][:2] == (actor, "call")
            add(actor, _answered(waiting.pop(actor, ""), text.removeprefix("→ "), whole))
        elif kind == "line" and rows[place - 1][:2] != (actor, "call"):
            add(actor, f"went on ({text})")
        elif kind == "bad":
            add(actor, text.removeprefix("✗ "))
    return [f"{actor} {', '.join(texts)}" for actor, texts in parts]


def _answered(operation: str, answer: str, whole: bool) -> str:
    verb, _, what = operation.partition(" ")
    if answer.startswith("["):
        return f"read {answer[1:-1] or 'nothing'}"
    if not answer.startswith("ok"):
        return _short(answer, 90)
    if not whole:
        return "was acknowledged"
    return f"{_PAST.get(verb, verb)} {what}".rstrip() + " and was acknowledged"


_WITHOUT_EVENTS = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r" that began at event \d+ and ended at event \d+", ""),
        (r"(began later), at event \d+, and ended at event \d+", r"\1"),
        (r"the read that ended at event \d+ has it", "a later read has it"),
        (
            r"the read that ended at event \d+, and no longer in the one",
            "one read, and no longer in a later one",
        ),
        (r"the one that ended at event \d+,", "one,"),
        (r"the one that ended at event \d+ before", "the other before"),
        (r"the read from event \d+ to \d+", "a later read"),
        (r" ?\((events?|of event) [0-9, to]+\)|,? ((which|that) )?(ended )?at event \d+| at [0-9.]+ s\b", ""),
    )
)
_PROCESS = re.compile(r"\bprocess (\d+)\b")
CONCLUSION_MAX = 200


def conclusion(failure: FailedSchedule) -> str:
    """What is wrong, without event numbers and times, which mean nothing in a history of a dozen lines."""
    first = failure.anomalies[0]
    if first.name in ("lost-update", "dropped") and first.first.message:
        return f"{first.first.message} is gone."
    plain = first.sentence.strip().rstrip(".")
    for pattern, instead in _WITHOUT_EVENTS:
        plain = pattern.sub(instead, plain)
    names = ClientsProgram.parse(failure.program).names
    plain = _PROCESS.sub(
        lambda found: names[int(found[1])] if int(found[1]) < len(names) else "another process",
        plain[:1].lower() + plain[1:],
    )
    return f"{first.name}: {_short(plain, CONCLUSION_MAX)}."


# ---- the page

_GAP, _LEFT, _ROW = 300, 130, 26
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.head{font-weight:bold}.life{stroke:#bbb;stroke-dasharray:4 3}"
    ".wrote,.asked{stroke:#b3261e;stroke-width:1.5}.read{stroke:#1f5fa8;stroke-width:1.5}.note{fill:#555}"
    "text.bad{fill:#b3261e;font-weight:bold}circle.bad{fill:#b3261e}"
)
_ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def svg(failure: FailedSchedule) -> str:
    """A sequence diagram: a lifeline for each client, and one for the engine in the middle."""
    names = ClientsProgram.parse(failure.program).names
    half = (len(names) + 1) // 2
    order = [*names[:half], "engine", *names[half:]]
    place = {name: _LEFT + _GAP * index for index, name in enumerate(order)}
    body: list[str] = []
    y = 60
    for row in _rows(failure.steps):
        body += _drawn(row, place, y)
        y += _ROW
    width = _LEFT * 2 + _GAP * (len(order) - 1)
    told = escape(conclusion(failure))
    body.append(f'<text x="{width // 2}" y="{y + 6}" text-anchor="middle" class="bad">{told}</text>')
    y += _ROW
    lives = "".join(
        f'<line x1="{x}" y1="36" x2="{x}" y2="{y}" class="life"/>'
        f'<text x="{x}" y="24" text-anchor="middle" class="head">{name}</text>'
        for name, x in place.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 20}" width="{width}">'
        f'<style>{_STYLE}</style>{_ARROW}<rect width="100%" height="100%" fill="#fff"/>{lives}{"".join(body)}</svg>'
    )


def _drawn(row: _PictureRow, place: dict[str, int], y: int) -> list[str]:
    engine = place["engine"]
    x = place.get(row.actor, engine)
    if row.kind in ("wrote", "read", "asked") and x != engine:
        first, second = (engine, x) if row.kind == "read" else (x, engine)
        return [
            f'<line x1="{first}" y1="{y}" x2="{second}" y2="{y}" class="{row.kind}" marker-end="url(#a)"/>',
            f'<text x="{(x + engine) // 2}" y="{y - 5}" text-anchor="middle">{escape(_short(row.text, 44))}</text>',
        ]
    if row.actor == LATER:
        told = escape(_short(f"read afterwards: {row.text}", 60))
        return [f'<text x="{engine}" y="{y + 4}" text-anchor="middle" class="note">{told}</text>']
    kind = "bad" if row.kind == "bad" else "note"
    side, shift = ("end", -8) if x < engine else ("start", 8)
    return [
        f'<circle cx="{x}" cy="{y}" r="3" class="{kind}"/>',
        f'<text x="{x + shift}" y="{y + 4}" text-anchor="{side}" class="{kind}">{escape(_short(row.text, 20))}</text>',
    ]
