"""The contract of a memory store, and the values that cross it.

`MemoryStore` is the whole required protocol. What only some stores can do is in capability protocols next to it: check
with ``isinstance(store, Listable)``. Every store in `recollect.stores` keeps these promises:

* a turn (the messages of one `append`) is stored whole or not at all;
* a retry with the same `turn` id stores nothing new and returns the first receipt; other messages under that id are
  refused (`TurnReused`);
* `expect` is compare-and-set on the session's position, which every change but `forget` moves;
* order is a per-session sequence assigned by the engine and never reused, not even after `forget`; a turn's messages
  have consecutive sequences, and a change that stores no message takes one sequence too;
* what cannot be decoded, or is provably gone, is a `Damaged` item in its place: never an exception for the whole
  history, never a silent skip;
* every call ends within the store's `timeout_s`.
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypedDict, runtime_checkable

import msgspec

from recollect.appending import Said
from recollect.erasure import Erasure
from recollect.errors import Refused, shown
from recollect.message import Damaged, Message
from recollect.private import FILE_MODE
from recollect.private import checked as check_mode
from recollect.secret import SecretUrl

Refresh = Literal["append", "read", "never"]
"""What restarts a session's time to live: each append, each append and read, or nothing after the first append."""


class Durability(enum.Enum):
    """What a write survives. Ordered: ``BUFFERED < WRITTEN < FSYNCED``."""

    BUFFERED = "buffered"
    """Can be lost when the engine dies."""
    WRITTEN = "written"
    """Survives the engine's death; power loss can take it."""
    FSYNCED = "fsynced"
    """Survives power loss."""

    def __lt__(self, other: "Durability") -> bool:
        return _DURABILITY_RANK[self] < _DURABILITY_RANK[other]

    def __le__(self, other: "Durability") -> bool:
        return not other < self


_DURABILITY_RANK = {durability: rank for rank, durability in enumerate(Durability)}


class Receipt(msgspec.Struct, frozen=True):
    """What an acknowledgement is worth: where the messages are, and what they survive."""

    session: str
    first: int
    """Sequence of the turn's first message; the others follow without gaps."""
    last: int
    """Sequence of the turn's last message; pass it as `expect` or `after`."""
    durability: Durability
    replicas: int = 0
    """Copies, beside the primary, that acknowledged the write."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message in its place in the session."""

    sequence: int
    message: Message | Damaged


class SessionState(enum.Enum):
    """Tells an expired session from one that never existed."""

    ABSENT = "absent"
    LIVE = "live"
    EXPIRED = "expired"
    FORGOTTEN = "forgotten"


@runtime_checkable
class MemoryStore(Protocol):
    """The required protocol: four methods."""

    async def append(
        self, session: str, messages: Sequence[Message], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Stores the messages as one turn at the end of the session.

        `turn` makes a retry safe: the same id with the same messages stores nothing new, with other messages it is
        refused (`TurnReused`). `expect` is the session's position as the caller knows it: the last sequence of a
        receipt, what `position` returned, or 0 for a session that never existed. After `forget` it is not 0: sequences
        go on. If somebody else has changed the session since, nothing is written and `Conflict` is raised.
        """
        ...

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        """The session's messages in order: all, only the `last` n, or only those with a sequence above `after`.

        Retracted messages are left out and not counted.
        """
        ...

    async def forget(self, session: str) -> Erasure | None:
        """Removes the session's messages. Sequences go on from where they were. Only `Erasable` stores report."""
        ...

    async def close(self) -> None:
        """Closes the store's connections. Acknowledged messages are not affected."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """A store with a time to live."""

    async def state(self, session: str) -> SessionState:
        """Whether the session is live, expired, forgotten, or never existed."""
        ...

    async def sweep(self) -> int:
        """Frees what expired sessions still occupy; returns how many were freed. Reads never show them in any case."""
        ...


@runtime_checkable
class Listable(Protocol):
    """A store that can name its sessions."""

    def sessions(
        self, *, prefix: str | None = None, updated_after: float | None = None
    ) -> AsyncIterator[str]:
        """The ids of all live sessions, or only those that begin with `prefix`, or that changed after a given time.

        In no particular order, in batches behind the scenes; with `updated_after` (epoch seconds by the engine's clock;
        0 for all) in order of their last change, the latest first.
        """
        ...


@runtime_checkable
class Positioned(Protocol):
    """A store that knows each session's position."""

    async def position(self, session: str) -> int:
        """The last sequence the session has assigned, whatever became of its message; 0 if it never existed. `expect`
        is compared with this. It survives `forget` and expiry."""
        ...

    async def forget(self, session: str, *, expect: int | None = None) -> Erasure | None:
        """Removes the session's messages and its metadata. Its position and its turn ids stay.

        With `expect`, only if the session's position is still that one; else `Conflict`. The position does not move, so
        `expect` does not catch a job that read the session before `forget` and writes to it after.
        """
        ...


@runtime_checkable
class Retractable(Protocol):
    """A store that can take single messages back."""

    async def retract(
        self, session: str, *sequences: int, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Removes single messages, all or none; their sequences are not reused.

        If one of them is not (or no longer) there, nothing is changed and `NotFound` is raised: of several callers that
        retract the same message, one succeeds. The retraction itself takes the session's next sequence, which is
        `first` and `last` of the receipt, so that `expect` notices it. To pop the last message::

            [item] = await store.history(session, last=1)
            await store.retract(session, item.sequence, expect=position)
        """
        ...


@runtime_checkable
class Replaceable(Protocol):
    """A store that can replace all messages of a session."""

    async def replace(
        self,
        session: str,
        messages: Sequence[Said],
        *,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """Removes the session's messages and stores these instead, in one step: to compact, to redact, to set.

        The new messages get the next sequences. With `expect`, a change that somebody else made meanwhile is not
        overwritten: `Conflict`. An empty list is fine: the session is then empty, and keeps its metadata.
        """
        ...


@runtime_checkable
class Forkable(Protocol):
    """A store that can copy a session."""

    async def fork(
        self,
        session: str,
        new: str,
        *,
        upto: int | None = None,
        turn: str | None = None,
        expect: int | None = None,
    ) -> Receipt:
        """Copies the session's messages, or those up to a sequence, and its metadata into a new session, independent
        from then on. The copies keep their originals' sequences; `first` and `last` of the receipt are the position of
        the new session.

        `expect` is the position of the source. If the new session already exists, `Conflict` is raised; if the source
        has nothing to copy, `NotFound`.
        """
        ...


class Description(msgspec.Struct, frozen=True):
    """A session, without its messages."""

    session: str
    state: SessionState
    position: int
    created: float | None
    """Epoch seconds by the engine's clock; None if an older release made the session."""
    updated: float | None
    """The time of the last change, likewise; None if an older release made it."""
    metadata: dict[str, Any]


@runtime_checkable
class Describable(Protocol):
    """A store that keeps metadata and times for each session."""

    async def describe(self, session: str) -> Description:
        """The session's state, position, times and metadata. A session that never existed has the state `ABSENT`."""
        ...

    async def annotate(
        self, session: str, metadata: Mapping[str, Any], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """Replaces the session's metadata, a mapping of text to JSON.

        A session that does not exist is created. The change takes the session's next sequence, so that of two callers
        that read, change and annotate with `expect`, one gets a `Conflict`.
        """
        ...


@runtime_checkable
class Findable(Protocol):
    """A store that finds a message by its id."""

    async def find(self, session: str, message_id: str) -> Stored | None:
        """The session's message with this id, the latest if there are several; None if there is none."""
        ...


@runtime_checkable
class Spanning(Protocol):
    """A store that writes to several sessions in one step."""

    async def append_many(
        self,
        turns: Mapping[str, Sequence[Said]],
        *,
        turn: str | None = None,
        expect: Mapping[str, int] | None = None,
    ) -> dict[str, Receipt]:
        """Appends to several sessions, to all or to none, and returns a receipt for each.

        Together they may have as many messages and bytes as a single turn. `turn` is remembered in each of them.
        `expect` maps sessions to the positions they must have.
        """
        ...


@runtime_checkable
class Erasable(Protocol):
    """A store that can erase a session from its engine's files."""

    async def forget(self, session: str, *, erase: bool = False) -> Erasure | None:
        """`MemoryStore.forget`; with `erase`, returns when the bytes are gone from every file that can be reached.

        That rewrites files, so it takes longer the larger they are, and other writers wait for it. The messages, the
        turn ids and the session's id are erased: if the id is used again, its sequences begin at 1. The report names
        what could not be reached. In Redis and PostgreSQL a digest of the id stays for a week, so that other processes
        do not take this for a loss.
        """
        ...


class OpenOptions(TypedDict, total=False):
    """The options of `open_store`, as a caller may write them; `Options` says what each one means."""

    durability: "Durability | str | None"
    replicas: int
    witness: str | Path | None
    ttl: timedelta | None
    refresh: Refresh
    turns_kept: int
    timeout_s: float
    pool_size: int
    file_mode: int | None
    read_url: str | None
    migrate: bool


TTL_MAX = timedelta(days=365_000)
"""A thousand years: a session that expires beyond the engine's calendar would make every append fail."""

_BOUNDS: dict[str, tuple[float, float]] = {
    "replicas": (0, 1_000),
    "turns_kept": (1, 1_000_000_000),
    "timeout_s": (0.001, 1_000_000),
    "pool_size": (1, 100_000),
}

_KINDS = {
    "witness": (str | PathLike, "the path of a file"),
    "read_url": (str | SecretUrl, "the address of a read replica"),
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `open_store` was asked for, checked. Read by every store; a store refuses what it cannot honour."""

    durability: Durability | None = None
    """What every write must survive, or the store does not open; None takes what the engine gives."""
    replicas: int = 0
    """Redis and PostgreSQL: how many replicas must acknowledge each write."""
    witness: Path | None = None
    """A small file kept elsewhere that remembers which store this was."""
    ttl: timedelta | None = None
    """How long a session lives; None means for ever."""
    refresh: Refresh = "append"
    """What restarts the time to live: ``"append"``, ``"read"`` (appends and reads), or ``"never"``."""
    turns_kept: int = 1000
    """How many turn ids of a session are remembered for exactly-once retries."""
    timeout_s: float = 10.0
    """Time limit of every call, including the wait for a connection."""
    pool_size: int = 8
    """Redis and PostgreSQL: the most connections."""
    file_mode: int | None = FILE_MODE
    """The mode of files the store creates: SQLite's, and the witness; None leaves it to the umask. Existing files keep
    theirs."""
    read_url: SecretUrl | None = None
    """PostgreSQL only: one or more read replicas, used when caught up."""
    migrate: bool = True
    """PostgreSQL only: bring the schema up to date on opening."""

    @classmethod
    def checked(cls, given: OpenOptions) -> Self:
        """The options as callers write them: a path may be text, a durability its name."""
        options: dict[str, Any] = dict(given)
        if unknown := sorted(options.keys() - set(cls.__struct_fields__)):
            known = ", ".join(cls.__struct_fields__)
            raise TypeError(f"open_store has no option {unknown[0]!r}; it has {known}")
        for name, (kind, wanted) in _KINDS.items():
            if options.get(name) is not None and not isinstance(options[name], kind):
                raise Refused(f"{name}: {wanted}, or None; not {shown(options[name])}")
        for name, of_text in (("durability", _durability), ("witness", Path), ("read_url", SecretUrl)):
            if options.get(name) is not None:
                options[name] = of_text(options[name])
        return cls(**options)

    def __post_init__(self) -> None:
        if self.refresh not in ("append", "read", "never"):
            raise Refused(f"refresh: 'append', 'read' or 'never', not {self.refresh!r}")
        if self.ttl is not None and not isinstance(self.ttl, timedelta):
            raise Refused(f"ttl: a timedelta, such as timedelta(days=7), or None; not {shown(self.ttl)}")
        if self.ttl is not None and not timedelta(milliseconds=1) <= self.ttl <= TTL_MAX:
            raise Refused(
                f"ttl: a millisecond to {TTL_MAX.days:,} days, or None to keep memory for ever; not {self.ttl}"
            )
        if not isinstance(self.migrate, bool):
            raise Refused(f"migrate: True or False, not {shown(self.migrate)}")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float if name == "timeout_s" else int):
                kind = "a number of seconds" if name == "timeout_s" else "a whole number"
                raise Refused(f"{name}: {kind}, not {shown(value)}")
            if not least <= value <= most:  # written so that NaN is refused too
                wanted = f"at least {least}" if value < least else f"at most {most}"
                raise Refused(f"{name}: {wanted}, not {shown(value)}")
        check_mode(self.file_mode)


def _durability(value: Durability | str) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        known = ", ".join(repr(durability.value) for durability in Durability)
        raise Refused(f"durability: one of {known}, not {value!r}") from None


@runtime_checkable
class Store(
    Positioned,
    Retractable,
    Replaceable,
    Forkable,
    Describable,
    Findable,
    Spanning,
    Expiring,
    Listable,
    Erasable,
    MemoryStore,
    Protocol,
):
    """What `open_store` gives: the required protocol with every capability of the built-in stores."""

    async def append(
        self, session: str, messages: Sequence[Said], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        """See `MemoryStore.append`. Also takes the dictionaries of `Message.from_openai` and `from_langchain`."""
        ...

    async def forget(self, session: str, *, expect: int | None = None, erase: bool = False) -> Erasure | None:
        """See `Positioned.forget` and `Erasable.forget`."""
        ...

    @property
    def identity(self) -> str:
        """The UUID the store was given when it was first opened."""
        ...

    @property
    def durability(self) -> Durability:
        """What an acknowledged append survives, as receipts will say."""
        ...

    @property
    def notice(self) -> str | None:
        """What could be lost with the engine's settings, or None; logged once when the store was opened."""
        ...
