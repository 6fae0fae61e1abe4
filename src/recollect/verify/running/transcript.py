"""From intents and replies to the history: numbers for messages, requests for workers, elements for reads."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from recollect.verify.judging import op
from recollect.verify.judging.evidence import NOT_A_DISTURBANCE
from recollect.verify.judging.history import HistoryWriter
from recollect.verify.judging.read_deltas import to_runs
from recollect.verify.running.unnumbered_texts import UnnumberedTexts
from recollect.verify.running.workloads import (
    AppendTurn,
    Body,
    ForkOff,
    Intent,
    ReadBack,
    ReplaceAll,
    SaveBack,
    TakeBack,
)
from recollect.verify.target import pipe
from recollect.verify.target.about import session_about
from recollect.verify.target.contents import AGAIN, KINDS
from recollect.verify.target.marked_text import ROLES, Recognised, excerpt_of_whole, mark
from recollect.verify.target.outcomes import Outcome

RETRIES_MAX = 3


@dataclass
class _Sight:
    """What a client last saw of a session: enough for a cursor, a compare-and-set, or a rewrite."""

    began: int
    event: int
    numbers: list[int]
    sequence: int | None
    position: int | None = None
    places: dict[int, int] = field(default_factory=dict)
    """Where each message stood in the list that the store returned."""


@dataclass
class _Attempt:
    """A write under way, kept so that it can be sent again as it was."""

    intent: AppendTurn
    writes: list[op.WriteAsked]
    """One for each session, in the order of `parts`."""
    request: pipe.AppendMessages
    tries: int = 1

    @property
    def parts(self) -> list[tuple[AppendTurn, op.WriteAsked]]:
        return list(zip((self.intent, *self.intent.beside), self.writes, strict=True))

    def processes(self, client: int) -> list[int]:
        """Under which numbers the history has its parts."""
        return [op.part_process(client, place) for place in range(len(self.writes))]


def _numbers(write: op.WriteAsked) -> range:
    """The numbers of its messages."""
    return range(write.first, write.first + len(write.checksums))


def _processes(attempt: _Attempt | None, client: int) -> list[int]:
    """Under which numbers the history has what this client is doing."""
    return [client] if attempt is None else attempt.processes(client)


def _places(elements: list[op.Element]) -> dict[int, int]:
    return {element.message: place for place, element in enumerate(elements) if element.message is not None}


def _copy(element: op.Element, copies: dict[int, int]) -> op.Element:
    return (
        element
        if element.message is None
        else element._replace(message=copies.get(element.message, element.message))
    )


def _contents(bodies: tuple[Body, ...]) -> tuple[str, ...]:
    """What each message is besides its number, as reports call it; nothing at all for texts that only carry one."""
    called = tuple(
        KINDS[body.kind].called if body.kind in KINDS else _said_again(body.text) * (body.kind == AGAIN)
        for body in bodies
    )
    return called if any(called) else ()


def _said_again(text: str) -> str:
    return f'the text "{text}"' if text else "an empty text"


def _text(number: int, body: Body) -> str:
    """The text as it is sent; a message with a kind is made by the worker that writes it."""
    if not body.marked:
        return body.text
    return "" if body.kind else mark(number, body.text)


class Transcript:
    """Writes the history of one run: begins what a client wants, and ends it with what came back."""

    def __init__(
        self,
        history: HistoryWriter,
        *,
        retries: bool,
        retention_s: float | None = None,
        keeps_newest: bool = False,
    ) -> None:
        """`retention_s` is how long memory lives, as the target says; `keeps_newest`, that it drops the oldest."""
        self._history = history
        self.retention_s = retention_s
        self.blames_writes = False
        """Whether nothing excuses an error now: one client, and nothing is broken."""
        self.succeeded = 0
        """Operations that ended `ok`."""
        self.kinds: dict[str, bool] = {}
        """The kinds of content that were tried, and whether any of each was acknowledged."""
        self._retries = retries
        self._checksums: list[int] = []
        self._seen: dict[tuple[int, str], _Sight] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._to_retry: dict[int, _Attempt] = {}
        self._saves: dict[int, range] = {}
        self._unnumbered = UnnumberedTexts(keeps_newest=keeps_newest)
        self._asked: dict[int, op.ReadAsked] = {}
        self._began: dict[int, int] = {}
        self._sessions: dict[str, None] = {}
        self._acknowledged: dict[str, set[int]] = {}
        self._forgotten: dict[str, int] = {}
        """By session, the first message that its latest forget cannot have taken."""
        self._unmarked: set[int] = set()
        self._last_whole: dict[str, set[int]] = {}
        self._older: dict[int, str] = {}
        """Messages that were there before this run, and the role each had, if that is known."""
        self._copies: dict[str, dict[int, int]] = {}
        """By session that is a fork, the number in each text and that of its copy."""
        self._oldest: dict[str, int] = {}
        """The first of them in each session."""

    @property
    def sessions(self) -> list[str]:
        """Every session that was written to, in the order of their first write."""
        return list(self._sessions)

    @property
    def written(self) -> int:
        """Messages acknowledged so far."""
        return sum(len(numbers) for numbers in self._acknowledged.values())

    def begin(self, process: int, intent: Intent) -> pipe.Request:
        """Records the invocation and returns the request to send."""
        match intent:
            case AppendTurn():
                return self._begin_append(process, intent)
            case SaveBack():
                return self._begin_save(process, intent)
            case ReplaceAll():
                return self._begin_replace(process, intent)
            case TakeBack():
                return self._begin_retract(process, intent)
            case ForkOff():
                return self._begin_fork(process, intent)
            case ReadBack(session, last, after_seen, positioned):
                return self._begin_read(process, session, last, after_seen, positioned=positioned)
            case pipe.ReadContext(session):
                self._began[process] = self._history.invoke(process, session, "context")
                return intent
            case pipe.Forget(session):
                self._history.invoke(process, session, "forget")
                return intent
            case pipe.SearchIndex(session):
                self._history.invoke(process, session, "search")
                return intent

    def retry_of(self, process: int) -> tuple[Intent, pipe.Request] | None:
        """A write of this client whose outcome is unknown, once more, under the same turn id."""
        attempt = self._to_retry.pop(process, None)
        if attempt is None:
            return None
        attempt.tries += 1
        self._attempts[process] = attempt
        for one, (part, write) in zip(attempt.processes(process), attempt.parts, strict=True):
            self._history.invoke_write(one, part.session, "append", write)
        return attempt.intent, attempt.request

    def end(self, process: int, intent: Intent, reply: pipe.Reply) -> Outcome:
        """Records what came back."""
        if isinstance(reply, pipe.Failed):
            return self._end_badly(process, reply)
        self.succeeded += 1
        if isinstance(intent, pipe.Forget):
            self._forgotten[intent.session] = self._history.messages
        attempt = self._attempts.pop(process, None)
        if (saved := self._saves.pop(process, None)) is not None:
            if isinstance(intent, ForkOff):
                self._acknowledged[intent.new] = set(saved)
            else:
                assert isinstance(intent, SaveBack | ReplaceAll)
                self._acknowledged[intent.session].update(saved)
                self._kept_kinds(intent.bodies)
        match reply:
            case pipe.Acked(sequence, durability, replicas):
                self._acknowledge(process, attempt, op.Acknowledged(sequence, durability, replicas))
            case pipe.Lines():
                self._acknowledge(process, attempt, op.Acknowledged())
            case pipe.Elements():
                self._end_read(process, intent.session, reply)
            case pipe.Parts(parts):
                read = [(op.ReadAsked(), self._elements(process, intent.session, part)) for part in parts]
                self._history.ok_context(process, read)
            case pipe.FoundBy(listed, found):
                self._history.ok_search(process, listed, found)
        return "ok"

    def unknown(self, process: int, error: str) -> None:
        """The client is gone; whatever it was doing has no outcome."""
        attempt = self._attempts.pop(process, None)
        self._to_retry.pop(process, None)
        self._saves.pop(process, None)
        for one in _processes(attempt, process):
            self._history.unknown(one, error)

    def was_kept(self, process: int, session: str, text: str, role: str | None) -> None:
        """A message that an earlier program stored, and that was acknowledged then."""
        number, _ = self._number(session, (Body(excerpt_of_whole(text), marked=False),))
        self._oldest.setdefault(session, number)
        self._older[number] = ROLES.get(role, role) if role is not None else ""
        self._invoke(process, session, "append", op.WriteAsked(number, (self._checksums[number],)))
        event = self._history.ok(process, op.Acknowledged())
        self._acknowledged.setdefault(session, set()).add(number)
        self._unnumbered.moments.acknowledged[number] = event

    def refused_read(self, process: int, session: str, error: str) -> None:
        """A read that could not even begin, because the store would not open."""
        self._history.invoke_read(process, session)
        self._history.fail(process, error)

    def short_sessions(self) -> list[str]:
        """Sessions whose last whole read lacks messages that were acknowledged, and that an engine can be asked for."""
        return [
            session
            for session, acknowledged in self._acknowledged.items()
            if self._not_forgotten(session) - self._last_whole.get(session, acknowledged) - self._unmarked
        ]

    @property
    def saw_nothing(self) -> bool:
        """Whether every session was read, and no read had anything that was acknowledged."""
        return all(
            session in self._last_whole and not acknowledged & self._last_whole[session]
            for session, acknowledged in self._acknowledged.items()
        )

    def counted(self, process: int, session: str, held: set[int]) -> None:
        """What the engine itself holds of a session, asked directly; what was forgotten may still be there, as such."""
        self._history.invoke(process, session, "count")
        self._history.ok(process, op.RowsCounted(len(self._not_forgotten(session) & held)))

    def _not_forgotten(self, session: str) -> set[int]:
        """What was acknowledged, and no forget can have taken."""
        first = self._forgotten.get(session, 0)
        return {number for number in self._acknowledged.get(session, ()) if number >= first}

    # ---- writes

    def _begin_append(self, process: int, intent: AppendTurn) -> pipe.Request:
        session = intent.session
        expect = None
        if intent.compare:
            sight = self._seen.get((process, session))
            expect = 0 if sight is None or sight.sequence is None else sight.sequence
        turn = f"turn-{self._history.messages}"
        spans = self._history.messages if intent.beside else None
        request = pipe.AppendMessages(session, [], turn, expect)
        writes: list[op.WriteAsked] = []
        for place, part in enumerate((intent, *intent.beside)):
            first, said = self._number(part.session, part.bodies)
            checksums = tuple(self._checksums[first:])
            write = op.WriteAsked(
                *(first, checksums, turn, expect, self.retention_s),
                spans=spans,
                contents=_contents(part.bodies),
            )
            self._invoke(op.part_process(process, place), part.session, "append", write)
            writes.append(write)
            if place:
                request.beside[part.session] = said
            else:
                request.said = said
        self._attempts[process] = _Attempt(intent, writes, request)
        return request

    def _begin_save(self, process: int, intent: SaveBack) -> pipe.Request:
        session = intent.session
        sight = self._seen[process, session]
        dropped = sight.numbers[: intent.drop]
        self._acknowledged.setdefault(session, set()).difference_update(dropped)
        first, said = self._number(session, intent.bodies)
        checksums = tuple(self._checksums[first:])
        kept_s, base = self.retention_s, sight.event
        write = op.WriteAsked(
            *(first, checksums),
            retention_s=kept_s,
            base=base,
            dropped=to_runs(dropped),
            contents=_contents(intent.bodies),
        )
        self._saves[process] = _numbers(write)
        self._invoke(process, session, "save", write)
        return pipe.Save(session, said, intent.drop)

    def _changeable(self, process: int, session: str) -> _Sight | None:
        """What this client saw of the session, if a change may be based on it.

        What it saw before a fault may not: sequences that were lost may belong to other messages by now. Nor may what
        it asked for before, if the answer came just in time.
        """
        sight = self._seen.get((process, session))
        if sight is None or sight.position is None:
            return None
        if not sight.numbers and session_about(session) is None:
            return None
        return sight if sight.began > self._history.disturbed else None

    def _begin_replace(self, process: int, intent: ReplaceAll) -> pipe.Request:
        session = intent.session
        if (sight := self._changeable(process, session)) is None:
            return self._begin_read(process, session, None, False)
        self._acknowledged.setdefault(session, set()).difference_update(sight.numbers)
        first, said = self._number(session, intent.bodies)
        turn = f"turn-{first}"
        write = op.WriteAsked(
            first,
            tuple(self._checksums[first:]),
            turn,
            sight.position,
            self.retention_s,
            base=sight.event,
            dropped=to_runs(sight.numbers),
        )
        self._saves[process] = _numbers(write)
        self._invoke(process, session, "replace", write)
        return pipe.Replace(session, said, turn, sight.position)

    def _begin_retract(self, process: int, intent: TakeBack) -> pipe.Request:
        session = intent.session
        if (sight := self._changeable(process, session)) is None:
            return self._begin_read(process, session, None, False)
        end = len(sight.numbers) - 1
        chosen = sorted({sight.numbers[min(int(place * (end + 1)), end)] for place in intent.places})
        self._acknowledged.setdefault(session, set()).difference_update(chosen)
        # If a fault may have taken sequences back, only the position tells whose they are when the request arrives.
        compare = intent.compare or self._history.header.fault not in NOT_A_DISTURBANCE
        expect = sight.position if compare else None
        turn = f"retract-{sight.event}-{process}"
        self._history.invoke_retract(process, session, op.RetractAsked(to_runs(chosen), turn, expect))
        return pipe.Retract(session, [sight.places[number] for number in chosen], turn, expect)

    def _begin_fork(self, process: int, intent: ForkOff) -> pipe.Request:
        """The copies get numbers of their own. The texts have those of the originals, so reads are translated."""
        session, new = intent.session, intent.new
        if (sight := self._changeable(process, session)) is None:
            return self._begin_read(process, session, None, False)
        first = self._history.messages
        said = {copy: original for original, copy in self._copies.get(session, {}).items()}
        self._copies[new] = {
            said.get(number, number): first + place for place, number in enumerate(sight.numbers)
        }
        self._sessions.setdefault(new)
        checksums = tuple(self._checksums[number] for number in sight.numbers)
        self._checksums += checksums
        turn = f"turn-{first}"
        write = op.WriteAsked(first, checksums, turn, retention_s=self.retention_s, copied=session)
        self._saves[process] = _numbers(write)
        self._invoke(process, new, "append", write)
        return pipe.MakeCopy(session, new, turn, sight.position)

    def _invoke(self, process: int, session: str, operation: op.Operation, write: op.WriteAsked) -> None:
        event = self._history.invoke_write(process, session, operation, write)
        self._unnumbered.moments.invoked.update(dict.fromkeys(_numbers(write), event))

    def _number(self, session: str, bodies: tuple[Body, ...]) -> tuple[int, list[pipe.Said]]:
        """The number of the first message, and all messages as they are written."""
        self._sessions.setdefault(session)
        first = self._history.messages
        said: list[pipe.Said] = []
        for number, body in enumerate(bodies, first):
            if not body.marked:
                self._unmarked.add(number)
                self._unnumbered.say(session, body.text, number)
            if body.kind:
                self.kinds.setdefault(body.kind, False)
            said.append(pipe.Said(number, _text(number, body), body.kind))
            self._checksums.append(zlib.crc32(body.text.encode("utf-8", "surrogatepass")))
        return first, said

    def _end_badly(self, process: int, reply: pipe.Failed) -> Outcome:
        attempt = self._attempts.pop(process, None)
        self._saves.pop(process, None)
        blame = op.BadEnd("raised") if self.blames_writes else None
        if reply.outcome == "fail":
            for one in _processes(attempt, process):
                self._history.fail(one, reply.error, blame)
            for part, write in attempt.parts if attempt is not None else ():
                for number, body in zip(_numbers(write), part.bodies, strict=True):
                    if not body.marked:
                        self._unnumbered.unsay(part.session, body.text, number)
            return "fail"
        for one in _processes(attempt, process):
            self._history.unknown(one, reply.error, blame)
        if attempt is not None and self._retries and attempt.tries <= RETRIES_MAX:
            self._to_retry[process] = attempt
        return "unknown"

    def _acknowledge(self, process: int, attempt: _Attempt | None, how: op.Acknowledged) -> None:
        if attempt is None:
            self._history.ok(process, how)
            return
        for one, (part, write) in zip(attempt.processes(process), attempt.parts, strict=True):
            event = self._history.ok(one, how)
            self._acknowledged.setdefault(part.session, set()).update(_numbers(write))
            self._kept_kinds(part.bodies)
            self._unnumbered.moments.acknowledged.update(dict.fromkeys(_numbers(write), event))

    def _kept_kinds(self, bodies: tuple[Body, ...]) -> None:
        self.kinds.update({body.kind: True for body in bodies if body.kind})

    # ---- reads

    def _begin_read(
        self,
        process: int,
        session: str,
        last: int | None,
        after_seen: bool,
        *,
        positioned: bool = False,
    ) -> pipe.Request:
        after, message = self._cursor(process, session) if after_seen else (None, None)
        ask = op.ReadAsked(last, message)
        self._asked[process] = ask
        partial = last is not None or after is not None
        self._began[process] = self._history.invoke_read(process, session, ask if partial else None)
        return pipe.Read(session, last, after, positioned)

    def _cursor(self, process: int, session: str) -> tuple[int, int] | tuple[None, None]:
        """Where this client is in the session: the store's own sequence, and its message. A fault ends every cursor:
        it may have taken that message, as documented, and then nothing can come after it."""
        sight = self._seen.get((process, session))
        if sight is None or sight.sequence is None or not sight.numbers:
            return None, None
        return (sight.sequence, sight.numbers[-1]) if sight.began > self._history.disturbed else (None, None)

    def _end_read(self, process: int, session: str, reply: pipe.Elements) -> None:
        elements = self._elements(process, session, reply)
        event = self._history.ok_read(process, elements)
        ask = self._asked.pop(process)
        if ask.last is None and ask.after is None:
            numbers = [element.message for element in elements if element.message is not None]
            places = {} if reply.position is None else _places(elements)
            self._seen[process, session] = _Sight(
                self._began[process], event, numbers, reply.sequence, reply.position, places
            )
            self._last_whole[session] = set(numbers)

    def _elements(self, process: int, session: str, reply: pipe.Elements) -> list[op.Element]:
        """What a worker recognised, as elements; texts without a number get the one they must have."""
        odd = iter(reply.odd)
        unnumbered = self._unnumbered.in_read(
            session, reply, began=self._began[process], disturbed=self._history.disturbed
        )
        checksums, known = self._checksums, len(self._checksums)
        elements: list[op.Element] = []
        for number in reply.numbers:
            if 0 <= number < known:
                elements.append(op.Element(number, checksums[number]))
            elif number >= 0:
                elements.append(op.Element(None, text=f"#{number}"))
            else:
                elements.append(self._odd(next(odd), unnumbered))
        if (copies := self._copies.get(session)) is not None:
            return [_copy(element, copies) for element in elements]
        first = self._oldest.get(session)
        return elements if first is None else self._with_altered(elements, first)

    def _with_altered(self, elements: list[op.Element], first: int) -> list[op.Element]:
        """A text that nobody wrote, just where an older message is missing, is that message with another text."""
        present = {element.message for element in elements}
        found: list[op.Element] = []
        for place, element in enumerate(elements):
            ahead = elements[place + 1].message if place + 1 < len(elements) else None
            behind = found[-1].message if found else None
            missing = behind + 1 if behind is not None else first if ahead is None else max(first, ahead - 1)
            if element.message is None and not element.damaged and missing in self._older.keys() - present:
                element = op.Element(missing, self._checksums[missing] ^ 1, text=element.text)
            found.append(element)
        return found

    def _odd(self, item: Recognised, unnumbered: dict[str, list[int]]) -> op.Element:
        if item.damaged:
            return op.Element(None, damaged=True, text=item.excerpt)
        if item.number is not None and item.number < len(self._checksums):
            altered = self._checksums[item.number] ^ 1
            return op.Element(item.number, altered, text=item.excerpt, unkept=item.unkept)
        numbers = unnumbered.get(item.excerpt)
        if numbers is None:
            return op.Element(None, text=item.excerpt)
        # More texts than were ever said: the last number again, which makes it a duplicate.
        number = numbers.pop(0) if len(numbers) > 1 else numbers[0]
        role = self._older.get(number)
        if role and item.role and role != item.role:
            told = f"the role {role} came back as {item.role}"
            return op.Element(number, self._checksums[number] ^ 1, text=told)
        return op.Element(number, self._checksums[number])
