"""What was asked and what came back: the vocabulary of a history.

An operation is two events of one process: an `invoke`, then `ok`, `fail` or `unknown`. A process is one
sequential client, so it has at most one operation open; a completion belongs to the open invocation of its
process. An invocation that never completes (the client was killed) counts as `unknown`.

The order of the events in the history is real time as the runner saw it: "before" always compares event
indices, never clocks. Times serve for windows and retention only.

Messages are numbered by the runner, from 0, in the order in which their appends are invoked; the messages of
one turn have consecutive numbers. The number travels inside the message's content, so that a read can be
matched to it. A repeated attempt at the same turn uses the same numbers: it is one logical write.

A turn over several sessions is an `append` in each of them. Its client invokes the first, and a process of its own
(`part_process`) each further one; they begin together, end together, and have the same `spans`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

Kind = Literal[
    "invoke",
    "ok",
    "fail",
    "unknown",
    "fault-injected",
    "fault-healed",
    "engine-stopped",
    "engine-started",
    "engine-refused",
    "run-stopped",
    "run-ended",
]
Operation = Literal[
    "", "append", "save", "replace", "retract", "read", "context", "forget", "search", "count"
]
Trait = Literal["single_writer", "one_process", "no_batches", "at_least_once", "ordered_by_clock"]
RefreshRule = Literal["message", "append", "read", "never"]

FORMAT = 1


PARTS_FROM = 1_000_000
"""Above the numbers of all clients; see `part_process`."""


def part_process(client: int, place: int) -> int:
    """The process under which a client's turn is recorded in the `place`-th of its sessions; 0 is the client itself."""
    return client + place * PARTS_FROM


def client_of(process: int) -> int:
    """The client that a process belongs to."""
    return process % PARTS_FROM if process >= 0 else process


class Element(NamedTuple):
    """One element of a read, as the target returned it.

    `message` is None when no number could be found in it; `damaged` marks an item that the store itself
    returned as undecodable. `text` is an excerpt for the witness and only needed for such odd elements. `unkept` marks
    one that lacks a field the store's interface never promised to keep.
    """

    message: int | None
    checksum: int | None = None
    damaged: bool = False
    text: str = ""
    unkept: bool = False


class OddElement(msgspec.Struct, frozen=True, omit_defaults=True):
    """An element that is not simply "message n, unchanged"; see `Element`."""

    message: int | None = None
    checksum: int | None = None
    damaged: bool = False
    text: str = ""
    unkept: bool = False


class WriteAsked(msgspec.Struct, frozen=True, tag="write", tag_field="is", omit_defaults=True, gc=False):
    """Value of an `append`, `save` or `replace` invocation: messages `first`, `first + 1`, … with these checksums.

    `turn` is the idempotency key and `expect` the compare-and-set argument, when the target takes them.
    `retention_s` is the life that the target declares for these messages: being gone before it or there after it
    is an anomaly. `base`, for a `save` or a `replace`, is the index at which the read completed whose list was
    extended and written back, or replaced. `dropped` are the messages that a save leaves out on purpose (a compaction)
    or that a replace replaces with its own, as runs. `spans`, for a turn over several sessions, is the first message of
    the first of its parts. `copied`, for a fork, is the session that it copies; copies have numbers of
    their own. `contents` says in words what each message is besides its text, if that is what is tested: "a tool call".
    """

    first: int
    checksums: tuple[int, ...]
    turn: str | None = None
    expect: int | None = None
    retention_s: float | None = None
    base: int | None = None
    dropped: tuple[int, ...] = ()
    spans: int | None = None
    copied: str | None = None
    contents: tuple[str, ...] = ()


class RetractAsked(msgspec.Struct, frozen=True, tag="retract", tag_field="is", omit_defaults=True, gc=False):
    """Value of a `retract` invocation: the messages to remove, all or none, as runs."""

    messages: tuple[int, ...]
    turn: str | None = None
    expect: int | None = None


class ReadAsked(msgspec.Struct, frozen=True, tag="ask", tag_field="is", omit_defaults=True, gc=False):
    """Value of a `read` invocation: the whole session, its `last` n, or what comes `after` a message.

    `after` is the number of the message at the cursor (the runner translates the store's own cursor).
    """

    last: int | None = None
    after: int | None = None


class Seen(msgspec.Struct, frozen=True, tag="seen", tag_field="is", omit_defaults=True, gc=False):
    """Value of a `read` completion, coded against an earlier view of the session (see read_deltas.py).

    The elements are `previous[skip : skip + keep]`, then `tail`: runs `start, count, start, count, …`. A
    negative start -n is the n-th of `odd`.
    """

    skip: int = 0
    keep: int = 0
    tail: tuple[int, ...] = ()
    odd: tuple[OddElement, ...] = ()


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One statement of a context read: what it asked for, and what it saw."""

    ask: ReadAsked = ReadAsked()
    seen: Seen = Seen()


class Context(msgspec.Struct, frozen=True, tag="context", tag_field="is", omit_defaults=True):
    """Value of a `context` completion: a read made of several statements of one session."""

    parts: tuple[Part, ...]


class Found(msgspec.Struct, frozen=True, tag="found", tag_field="is", omit_defaults=True):
    """Value of a `search` completion: messages `listed` as rows, and messages `found` by the index; runs."""

    listed: tuple[int, ...] = ()
    found: tuple[int, ...] = ()


class RowsCounted(msgspec.Struct, frozen=True, tag="rows", tag_field="is", gc=False):
    """Value of a `count` completion: how many messages of the session the engine has, asked directly."""

    rows: int


class Acknowledged(
    msgspec.Struct, frozen=True, tag="acknowledged", tag_field="is", omit_defaults=True, gc=False
):
    """Value of a write's completion, when the target returns a receipt."""

    sequence: int | None = None
    durability: str | None = None
    replicas: int = 0


class BadEnd(msgspec.Struct, frozen=True, tag="ended", tag_field="is", gc=False):
    """Value of a completion that nothing excuses: no fault was near, and no caller expects this error as an answer.

    Written only where everything else was under control (interleavings, appending to older data).
    """

    how: Literal["raised", "hang"]


class FaultDetail(msgspec.Struct, frozen=True, tag="disturbance", tag_field="is", omit_defaults=True):
    """Value of a fault or engine event.

    `offset_s` moves the engine's clock until the fault is healed. `ago_s` is how long before the event was written an
    engine had ceased to work: it was paused, or took its time to die. `sync_s` is the longest sync that was recorded.
    """

    offset_s: float = 0.0
    detail: str = ""
    ago_s: float = 0.0
    sync_s: float = 0.0


Value = (
    WriteAsked
    | RetractAsked
    | ReadAsked
    | Seen
    | Context
    | Found
    | RowsCounted
    | Acknowledged
    | BadEnd
    | FaultDetail
)


class Event(msgspec.Struct, omit_defaults=True, gc=False):
    """One line of a history. For a fault event `operation` is the fault's name.

    `time_s` is monotonic, from the start of the run. `drift_s` is how far the wall clock was from
    `HistoryHeader.started_s + time_s`; the usual 0 costs no bytes.
    """

    index: int
    kind: Kind
    time_s: float
    process: int = -1
    session: str = ""
    operation: str = ""
    value: Value | None = None
    error: str | None = None
    drift_s: float = 0.0


OK_OPS_MIN = 10
SAYS_FALSE = "NotAcknowledged"
"""The error of a write that returned `False`."""
ANSWERS = frozenset({"Conflict", "Refused", SAYS_FALSE})
"""Errors that are answers: they say truthfully that nothing was written, and why; or the store did not raise, and
returned `False`."""


class HistoryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a history: what the judgement needs to know about the scenario.

    `retain_s` is how long memory must live at least (`--retain`); None means for ever. `refresh` says what
    restarts the clock of `WriteAsked.retention_s`. With fewer than `ok_ops_min` successful operations nothing is
    concluded.
    """

    history: int = FORMAT
    recollect: str
    seed: int = 0
    target: str = ""
    release: str = ""
    """The distribution and version of a target that has a name."""
    engine: str = ""
    engine_version: str = ""
    provider: str = ""
    policy: str = ""
    real_policy: str = ""
    """The policy that the store's own connections were set to, if it is another one: the store is judged by it."""
    fault: str = ""
    variant: str | None = None
    """How the fault happened, where it can in several ways; None in a history of an earlier release."""
    workload: str = ""
    traits: tuple[Trait, ...] = ()
    abilities: tuple[str, ...] | None = None
    """What the target can do; None in a history of an earlier release."""
    retain_s: float | None = None
    keeps_last: int | None = None
    """How many messages of a session the target says it keeps; None means all of them."""
    expected_errors: tuple[str, ...] = ()
    """Names of exceptions that the target declares as answers: nothing was written."""
    loss_errors: tuple[str, ...] = ()
    """Names of exceptions with which the target's reads say that something is gone."""
    refresh: RefreshRule = "append"
    clock_bound_s: float = 1.0
    ok_ops_min: int = OK_OPS_MIN
    started_s: float = 0.0
    ends: bool = False
    """Whether the last event is the end of the run; a history of an earlier release has none."""
    program: str = ""
    """In an interleaving: what the clients did; before it, programs that were run on the same store."""
    schedule: str = ""
    """In an interleaving: the order of the steps of each, as `recollect explore --replay` takes it."""
