"""What the clients do: a few operations each, written as `a r | a` (client A appends and reads, client B appends).

    a   append one message            t   append a turn of two messages
    r   read the whole session        x   read a context that the store assembles from several statements
    c   read, then append only if nothing came in between (compare-and-set)
    i   append under a turn id that every `i` of the program shares: one logical write, sent more than once
    s   the application's own read-modify-write: load, add one, save
    p   read, then replace everything with one message if nothing came in between
    f   forget the session            a1  the same on another session
    9+ a | a   nine messages were appended before: for what happens every tenth time

The programs that are tried by default are ordered by size, so the first that fails is the smallest that can.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

NAMES = "ABCDEFGH"
CLIENTS_MAX = len(NAMES)
OPERATIONS_MAX = 12
"""For one client: more would make too many orders to try."""
BEFORE_MAX = 100

CALLED = {
    "a": "append",
    "t": "append",
    "i": "append",
    "c": "compare and append",
    "r": "read",
    "x": "read the context",
    "s": "load and save",
    "p": "replace",
    "f": "forget",
}
NEEDS = {
    "t": "batches",
    "i": "turn",
    "c": "expect",
    "x": "context",
    "s": "whole-list",
    "p": "replace",
    "f": "forget",
}
"""What a target must be able to do for each operation."""

_READING = {"r", "x"}
_WORD = re.compile(r"([a-z])([0-9]?)")


class BadProgram(ValueError):
    """The text is not a program; the message names the part, and what could stand there."""


@dataclass(frozen=True)
class ProgramOp:
    """One operation of one client."""

    letter: str
    session: int = 0

    def __str__(self) -> str:
        return self.letter + (str(self.session) if self.session else "")


@dataclass(frozen=True)
class ClientsProgram:
    """The operations of each client, and how many messages were appended before."""

    clients: tuple[tuple[ProgramOp, ...], ...]
    before: int = 0

    @classmethod
    def parse(cls, text: str) -> ClientsProgram:
        head, plus, rest = text.partition("+")
        before = _before(text, head.strip()) if plus else 0
        parts = (rest if plus else text).split("|")
        if len(parts) > CLIENTS_MAX:
            raise BadProgram(f"program {text!r}: {len(parts)} clients; {CLIENTS_MAX} at most")
        clients = (tuple(_operations(text, part, name)) for part, name in zip(parts, NAMES, strict=False))
        return cls(tuple(clients), before)

    def __str__(self) -> str:
        return (f"{self.before}+ " if self.before else "") + " | ".join(
            " ".join(map(str, operations)) for operations in self.clients
        )

    @property
    def sessions(self) -> range:
        return range(1 + max(op.session for operations in self.clients for op in operations))

    def twins(self, number: int) -> tuple[int, ...]:
        """Clients before this one that do the same: nobody could tell if the two exchanged names. So it is with two
        clients on two sessions if nothing was appended before, since the sessions can exchange names too."""
        mine, earlier = self.clients[number], self.clients[:number]
        found = tuple(place for place, ops in enumerate(earlier) if ops == mine)
        if found or self.before or len(self.clients) != 2 or not earlier:
            return found
        other = tuple(ProgramOp(op.letter, 1 - op.session) for op in mine)
        return (0,) if earlier[0] == other and max(op.session for op in mine + other) == 1 else ()

    @property
    def reading(self) -> ClientsProgram:
        """As many clients, each of which only reads."""
        return ClientsProgram(((ProgramOp("r"),),) * len(self.clients))

    @property
    def letters(self) -> set[str]:
        return {op.letter for operations in self.clients for op in operations}

    @property
    def meetings(self) -> set[tuple[int, str, str]]:
        """Each operation, after how many messages, and which other client's operations meet it in one session: what a
        store does in a program is hardly more than what it does in these."""
        alone = {(self.before, op.letter, "") for operations in self.clients for op in operations}
        return alone | {
            (self.before, min(one.letter, other.letter), max(one.letter, other.letter))
            for mine, theirs in combinations(self.clients, 2)
            for one, other in product(mine, theirs)
            if one.session == other.session and not {one.letter, other.letter} <= _READING
        }

    @property
    def names(self) -> str:
        return NAMES[: len(self.clients)]

    def lacks(self, abilities: Collection[str]) -> str | None:
        """Why a target with these abilities cannot run it, or None."""
        for op in (op for operations in self.clients for op in operations):
            need = NEEDS.get(op.letter)
            if need is not None and need not in abilities:
                return f"`{op.letter}` ({CALLED[op.letter]}) needs a target with {need!r}"
            if op.letter in "atic" and "whole-list" in abilities:
                return f"`{op.letter}` (append): this target saves whole lists; use `s`"
        if self.before and "whole-list" in abilities:
            return "messages before (`9+`): this target saves whole lists"
        return None

    def smaller(self) -> Iterator[ClientsProgram]:
        """The same without one operation, or without the messages appended before."""
        if self.before:
            yield ClientsProgram(self.clients)
        for client, operations in enumerate(self.clients):
            for place in range(len(operations)):
                fewer = operations[:place] + operations[place + 1 :]
                rest = (*self.clients[:client], *((fewer,) if fewer else ()), *self.clients[client + 1 :])
                if rest:
                    yield ClientsProgram(rest, self.before)


def _before(text: str, number: str) -> int:
    if not number.isascii() or not number.isdigit() or not 0 < int(number) <= BEFORE_MAX:
        raise BadProgram(f"program {text!r}: {number!r} before the + is not a number from 1 to {BEFORE_MAX}")
    return int(number)


def _operations(text: str, part: str, client: str) -> Iterator[ProgramOp]:
    words = part.split()
    if not words:
        raise BadProgram(f"program {text!r}: client {client} has no operation")
    if len(words) > OPERATIONS_MAX:
        raise BadProgram(f"program {text!r}: {len(words)} operations of one client; {OPERATIONS_MAX} at most")
    for word in words:
        found = _WORD.fullmatch(word)
        if found is None or found[1] not in CALLED:
            known = ", ".join(f"{letter} {called}" for letter, called in CALLED.items())
            raise BadProgram(f"program {text!r}: {word!r} is not an operation; there are {known}")
        yield ProgramOp(found[1], int(found[2] or 0))


_APPENDING = (
    "a | a", "t | r", "i | i", "c | c", "c | a", "r r | a", "r | a r",
    "1+ a | a", "2+ p | r", "2+ p | a", "2+ x | a", "2+ x | t",  # a new store for each schedule, so these are slower
    "a r | a r", "t | t", "a1 r1 | a r", "a a | a a", "a | a | a", "a | f r", "a a | f a", "9+ a | a",
)  # fmt: skip
_SAVING = ("s | s", "s | r", "s1 r1 | s r", "s s | s s", "s | s | s", "s | f r", "s s | f s")
_CANCELLED = (
    "a r", "a a r", "a1 r1 r", "t r", "i i r", "s r", "s s r",
    "a r | a r", "a1 r1 | a r", "s r | s r", "s1 r1 | s r",
)  # fmt: skip


def programs(abilities: Collection[str], *, cancel: bool = False) -> list[ClientsProgram]:
    """The programs that a target with these abilities is tried with, smallest first."""
    texts = _CANCELLED if cancel else (*_APPENDING, *_SAVING)
    found = [ClientsProgram.parse(text) for text in texts]
    return [program for program in found if program.lacks(abilities) is None]


def spans(numbers: Iterable[int]) -> str:
    """Messages in a few words: m0–m18 m20."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(f"m{a}" if a == b else f"m{a} m{b}" if b == a + 1 else f"m{a}–m{b}" for a, b in found)
