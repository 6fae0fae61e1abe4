"""Every error that recollect raises. Each tells the truth about one question: was it written?

    RecollectError
    ├── Refused (ValueError)        bad input, or a store of another process or event loop; nothing was written, and
    │   │                           a retry will not help
    │   └── TurnReused              the turn id is already stored with other content; give a new turn a new id
    ├── NotWritten                  nothing was written; safe to retry
    │   ├── Conflict                `expect` did not match: someone wrote in between; read again, then retry
    │   ├── NotFound                what was to be changed is not there: retracted, forgotten, expired, or never written
    │   └── StoreClosed             also an EngineUnavailable: the store is closed; open it again
    ├── OutcomeUnknown              may or may not be written: retry with the same `turn` id (see `advice`)
    ├── Unreadable                  the engine answers, but what it holds cannot be read
    └── CannotOpen
        ├── DurabilityUnavailable   the durability asked for cannot be reached with the engine's settings
        ├── StoreReplaced           not the store it used to be: wiped, swapped or rolled back
        ├── EngineUnavailable       no engine answers at this address
        ├── CredentialsRefused      the engine answers, and does not let this user in
        └── MissingExtra (ImportError)   a driver is not installed

A running store also raises `StoreReplaced` when it notices that its files were taken away.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class RecollectError(Exception):
    """The base class of everything recollect raises."""


class Refused(RecollectError, ValueError):
    """The input cannot be stored as it is. Nothing was written."""


class TurnReused(Refused):
    """The turn id was used before, for other messages. Nothing was written."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(
            f"turn {shorten(turn)} of session {shorten(session)} was stored before with other messages; "
            "nothing was written: a retry sends the same messages, and new messages need a new turn id"
        )
        self.session, self.turn = session, turn

    def __reduce__(self) -> tuple[type["TurnReused"], tuple[str, str]]:
        return type(self), (self.session, self.turn)


class NotWritten(RecollectError):
    """Nothing was written; the call can be retried as it is."""


class Conflict(NotWritten):
    """Compare-and-set failed: the session's last sequence is not the one the caller expected, or the engine has lost
    messages since, so that others may have written in their place."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        what = f"expected last sequence {shown(expected)}, but it is {actual}"
        if expected == actual:
            what = f"the engine has lost messages up to sequence {actual}, and others may have written since"
        super().__init__(f"session {shorten(session)}: {what}; read the session again, then decide")
        self.session, self.expected, self.actual = session, expected, actual

    def __reduce__(self) -> tuple[type["Conflict"], tuple[str, int, int]]:
        return type(self), (self.session, self.expected, self.actual)


class NotFound(NotWritten):
    """The message or session to be changed is not there. Nothing was written."""


class OutcomeUnknown(RecollectError):
    """The write may or may not be in memory. A retry with the same turn id never stores it twice; `advice` says what to
    do where the call has none."""

    def __init__(self, reason: str, advice: str = "retry with the same turn id") -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason, self.advice = reason, advice

    def __reduce__(self) -> tuple[type["OutcomeUnknown"], tuple[str, str]]:
        return type(self), (self.reason, self.advice)


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """What to do if the outcome of a call that has no turn id is unknown."""
    try:
        yield
    except OutcomeUnknown as error:
        raise OutcomeUnknown(error.reason, advice) from error


class Unreadable(RecollectError):
    """The engine is up, but the data it holds cannot be read by this release."""


class CannotOpen(RecollectError):
    """The store was not opened; nothing was changed."""


class DurabilityUnavailable(CannotOpen):
    """The engine's settings cannot give the durability or the replicas asked for."""


class StoreReplaced(CannotOpen):
    """The store at this address is not the one the witness remembers, or lost its files while open."""


class EngineUnavailable(CannotOpen):
    """No engine answered at the address."""


class CredentialsRefused(CannotOpen):
    """The engine does not let this user in with this password."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where} refused the credentials: check the user and the password in the address ({reason})"
        )
        self.where, self.reason = where, reason

    def __reduce__(self) -> tuple[type["CredentialsRefused"], tuple[str, str]]:
        return type(self), (self.where, self.reason)


class StoreClosed(NotWritten, EngineUnavailable):
    """The store was closed before this call. Nothing was written, and nothing read."""

    def __init__(self, what: str = "store") -> None:
        super().__init__(f"the {what} is closed; open it again")
        self.what = what

    def __reduce__(self) -> tuple[type["StoreClosed"], tuple[str]]:
        return type(self), (self.what,)


class MissingExtra(CannotOpen, ImportError):
    """The driver for this kind of address is not installed."""


def shown(value: object) -> str:
    """Any value as it appears in an error. Python itself refuses to print integers with thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length():,} bits"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if type(value) is str:
        return shorten(value)
    # It may be large, nested without end, or not printable.
    return f"a value of type {type(value).__name__}"


def shorten(text: str, length_max: int = 60) -> str:
    """A value as it appears in an error: quoted, and cut where it would flood the line."""
    return repr(text if len(text) <= length_max else f"{text[:length_max]}… ({len(text)} characters)")
