"""What a workload may want done, and what it is told about its surroundings."""

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from recollect.verify.target.outcomes import Outcome
from recollect.verify.target.pipe import Forget, ReadContext, SearchIndex


@dataclass(frozen=True)
class Body:
    """A message's text. An unmarked one is written exactly as it is: the empty text, or the same text twice."""

    text: str
    marked: bool = True
    kind: str = ""
    """What the message is besides its text: a kind from `contents`, which together with a number describes it fully."""


@dataclass(frozen=True)
class AppendTurn:
    """Append these as one turn; with `compare`, only if nobody has written since this client's latest read."""

    session: str
    bodies: tuple[Body, ...]
    compare: bool = False
    beside: "tuple[AppendTurn, ...]" = ()
    """What the same turn appends to other sessions: all of it, or nothing anywhere."""


@dataclass(frozen=True)
class ReadBack:
    """Read the session: all of it, its last n, or what came after this client's latest read."""

    session: str
    last: int | None = None
    after_seen: bool = False
    positioned: bool = False
    """The session's position is asked for as well, for a change that is compared with it."""


@dataclass(frozen=True)
class SaveBack:
    """Write back the list of this client's latest read, without its first `drop`, with these at the end."""

    session: str
    bodies: tuple[Body, ...]
    drop: int = 0


@dataclass(frozen=True)
class ReplaceAll:
    """Replace all that this client's latest read showed with these, if nobody has changed anything since."""

    session: str
    bodies: tuple[Body, ...]


@dataclass(frozen=True)
class TakeBack:
    """Retract messages of this client's latest read: those at these places, each from 0 (the oldest) up to 1.

    With `compare`, only if nobody has changed anything since.
    """

    session: str
    places: tuple[float, ...]
    compare: bool = False


@dataclass(frozen=True)
class ForkOff:
    """Copy all that this client's latest read showed into a new session, if nobody has changed anything since."""

    session: str
    new: str


Intent = (
    ForkOff | AppendTurn | ReadBack | SaveBack | ReplaceAll | TakeBack | ReadContext | Forget | SearchIndex
)
"""The last three are sent as they are: they need nothing added."""


def reads(intent: Intent) -> bool:
    """Whether it changes nothing."""
    return isinstance(intent, ReadBack | ReadContext | SearchIndex)


CHANGING = SaveBack | ReplaceAll | TakeBack
"""They change what earlier writes left. A store that does it in several steps has a moment at which it is gone."""


CALLED: dict[type, str] = {
    AppendTurn: "an append",
    ReadBack: "a read",
    SaveBack: "a save",
    ReplaceAll: "a replace",
    TakeBack: "a retract",
    ForkOff: "a fork",
    ReadContext: "a context read",
    Forget: "a forget",
    SearchIndex: "a search",
}
"""What they are called in reports."""


@dataclass(frozen=True)
class Planner:
    """Who runs the plan: its own random numbers, the sessions, and what the target can do."""

    number: int
    rng: random.Random
    sessions: Sequence[str]
    abilities: frozenset[str]
    whole_reads: bool = False
    writers: int = 1
    """How many clients of its kind there are."""
    undisturbed: bool = False
    """No fault of this run can undo what was acknowledged."""

    def session(self) -> str:
        return self.rng.choice(self.sessions)


Plan = Generator[Intent, Outcome, None]


@dataclass(frozen=True)
class Workload:
    """A named way to use memory. `needs` are abilities of the target without which it cannot run."""

    name: str
    plan: Callable[[Planner], Plan]
    sessions: tuple[str, ...] = ()
    """Session ids of its own, if the ids are what is tested."""
    needs: frozenset[str] = frozenset()
    needs_one: frozenset[str] = frozenset()
    """Abilities of which it needs at least one, and uses all that there are."""
    refuses: frozenset[str] = frozenset()
    """Abilities that make it pointless: a whole-list store is not appended to."""
    unmarked: bool = False
    """Some of its texts carry no number; they are matched by their order, which only whole reads show."""
    enough: int = 0
    """How many messages it takes until the engine has done all its background work."""
    many_writers: bool = True
    """False if two writers in one session would be the application's mistake, not the store's."""

    def misfit(self, abilities: frozenset[str]) -> str | None:
        """Why it is not for a target with these abilities; None if it is."""
        if missing := self.needs - abilities:
            return f"workload {self.name!r} needs {', '.join(sorted(missing))} of the target"
        if self.needs_one and not self.needs_one & abilities:
            return f"workload {self.name!r} needs {' or '.join(sorted(self.needs_one))} of the target"
        if unwanted := self.refuses & abilities:
            return f"workload {self.name!r} is not for a store with {', '.join(sorted(unwanted))}"
        return None
