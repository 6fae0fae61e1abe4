"""What a store has been used for: whether it may be used for another schedule, and what is rehearsed on it first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from recollect.verify.explore.interleavings.program import ClientsProgram

GROWTHS_MAX = 8
"""How often a schedule is repeated, for each store, because of connections that were not there before."""


class StoreUse(NamedTuple):
    """One schedule that a store was used for."""

    program: ClientsProgram
    schedule: str


class HasPast:
    """Of a world whose stores are used for several schedules."""

    _past: StorePast

    @property
    def earlier(self) -> tuple[StoreUse, ...]:
        return self._past.before_latest

    @property
    def has_grown(self) -> bool:
        return self._past.has_grown


@dataclass
class StorePast:
    """Of the stores of one world, one after the other."""

    is_for_one: bool = False
    """Each store is used for one program: where callers give up, another one may have left more connections, and then
    what gives up, or comes after it, opens none."""
    uses: list[StoreUse] = field(default_factory=list)
    """The schedules that this store was used for, without what was rehearsed."""
    trusts: bool = True
    """False once a schedule went otherwise because of what a store remembers."""
    is_unmoved: bool | None = None
    """Whether they go on as ever when idle connections were ended; None: not tried yet."""
    spoiling: set[tuple[ClientsProgram, int]] = field(default_factory=set)
    """Rehearsals that damage a store, and are left out from then on."""
    clients_max: int = 0
    """For how many clients at once this store has been used."""
    has_grown: bool = False
    """Whether the last schedule left more connections open than any before it: the same choices, made again, would go
    otherwise, since those are there now."""
    _connections_max: int = 0
    _growths: int = 0
    _growing: dict[ClientsProgram, list[str]] = field(default_factory=dict)
    """The schedules after which more connections were open than before, in this order."""
    _grown: set[ClientsProgram] = field(default_factory=set)
    """Programs whose connections this store has."""
    _matters: dict[ClientsProgram, bool] = field(default_factory=dict)
    _known: set[tuple[int, str, str]] = field(default_factory=set)
    """What has met on the engine, where scripts stay."""
    _rehearsed: set[str] = field(default_factory=set)
    _latest: ClientsProgram | None = None

    def begins(self, program: ClientsProgram, matters: Callable[[ClientsProgram], bool]) -> tuple[bool, bool]:
        """Whether each schedule of it needs a new store, because of what a store remembers (`matters` tries it out, for
        programs with messages before); and whether this one does."""
        if program.before and program not in self._matters:
            self._matters[program] = not self.trusts or matters(program)
        alone = self._matters.get(program, False)
        other, self._latest = program != self._latest, program
        is_for_another = self.is_for_one and bool(self.uses)
        return alone, alone or (other and (is_for_another or not self.trusts))

    def trust_no_more(self) -> None:
        self.trusts, self._latest = False, None
        self._matters = dict.fromkeys(self._matters, True)

    def goes_as_usual(self, program: ClientsProgram) -> bool:
        """Whether the first rehearsal, run again, shows how it goes on a sound store, and leaves it so."""
        return self.trusts and (program, 0) not in self.spoiling

    @property
    def before_latest(self) -> tuple[StoreUse, ...]:
        """What this store had been used for when the latest schedule began."""
        return tuple(self.uses[:-1])

    def opened(self) -> None:
        self.uses = []
        self._rehearsed, self.clients_max = set(), 0
        self.has_grown, self._connections_max, self._growths = False, 0, 0
        self._grown = set()

    def counts(self, connections: int) -> None:
        """So many are open now. A store that opens more and more never goes the same way twice, and is not asked to."""
        self.has_grown = connections > self._connections_max and self._growths < GROWTHS_MAX
        self._growths += self.has_grown
        self._connections_max = max(self._connections_max, connections)

    def ended(self, program: ClientsProgram, schedule: str, connections: int = 0) -> None:
        """After this schedule, so many are open: a new store, on which it is run first, will have as many."""
        self.uses.append(StoreUse(program, schedule))
        self.counts(connections)
        if self.has_grown:
            self._growing.setdefault(program, []).append(schedule)
            self._grown.add(program)

    def grows_by(self, program: ClientsProgram) -> list[str]:
        """What opens the connections that a new store lacks."""
        if program in self._grown:
            return []
        self._grown.add(program)
        return self._growing.get(program, [])

    def knows(self, program: ClientsProgram) -> bool:
        """Whether the engine has seen all that meets in it."""
        return program.meetings <= self._known

    def has_done(self, program: ClientsProgram) -> bool:
        """Whether this store has done what it does, for as many clients, and the engine has seen it."""
        done = program.letters <= self._rehearsed and len(program.clients) <= self.clients_max
        return done and self.knows(program)

    def did(self, program: ClientsProgram) -> None:
        self._known |= program.meetings
        self._rehearsed |= program.letters
        self.clients_max = max(self.clients_max, len(program.clients))
