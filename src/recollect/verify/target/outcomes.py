"""Exceptions → outcomes: what an error says about whether the operation took effect.

A write `fail`s only when it certainly did nothing; whatever is not in the tables is `unknown`. Our own errors are taken
at their word. An engine's refusal is about one command: it proves that nothing was written only if nothing else that
could write was sent before (see `sent_requests`). A refused connection proves nothing: the driver may be retrying what
the engine did before it died. A read that raised is `unknown` if nobody answered, and `fail` if the engine did answer:
then the store could not make sense of the answer.
"""

from collections.abc import Callable
from typing import Any, Literal

Failure = Literal["fail", "unknown"]
Outcome = Literal["ok"] | Failure

# Exceptions by the full name of their class or any base class, so that no driver is imported here.
SAID_SO: frozenset[str] = frozenset(
    {
        "recollect.errors.NotWritten",
        "recollect.errors.Refused",
        "recollect.errors.EngineUnavailable",
        "recollect.errors.DurabilityUnavailable",
        # Compared before anything is written: somebody else was quicker.
        "google.adk.errors._stale_session_error.StaleSessionError",
        "pydantic_ai.conversation_store.ConversationConflict",
    }
)

# The engine answered with a refusal, and a refused command does nothing.
REFUSED: frozenset[str] = frozenset(
    {"redis.exceptions.ResponseError", "sqlite3.IntegrityError", "sqlite3.ProgrammingError"}
)

# Refusals that a second attempt may get after a fault, whether or not the first took effect.
REFUSED_LATER: frozenset[str] = frozenset(
    {"redis.exceptions.ReadOnlyError", "redis.exceptions.BusyLoadingError"}
)

# SQLSTATE classes after which PostgreSQL has rolled back: bad data, constraints, rollback, syntax, resources, limits.
SQLSTATE_FAILED = ("22", "23", "25", "40", "42", "53", "54", "55")

SQLITE_FAILED = ("locked", "busy", "full", "readonly", "unable to open", "no such table", "too big")

NOBODY_ANSWERED: frozenset[str] = frozenset(
    {
        "builtins.OSError",
        "builtins.TimeoutError",
        "builtins.EOFError",
        "recollect.errors.EngineUnavailable",
        "recollect.errors.NotWritten",
        "recollect.errors.OutcomeUnknown",
        "recollect.errors.StoreReplaced",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "asyncpg.exceptions._base.InterfaceError",
        "asyncpg.exceptions.PostgresConnectionError",
        "asyncpg.exceptions.OperatorInterventionError",
        "asyncpg.exceptions.InsufficientResourcesError",
        "psycopg.OperationalError",
        "psycopg_pool.PoolTimeout",
        "sqlalchemy.exc.OperationalError",
        "sqlalchemy.exc.InterfaceError",
        "sqlalchemy.exc.TimeoutError",
        "httpx.TransportError",
        "recollect.verify.target.target.FactoryRaised",
    }
)


def of_write(error: BaseException, *, only_write: bool = False) -> Failure:
    """`only_write` means that what the error is about is all the operation sent that could write."""
    for cause in _causes(error):
        names = _names(cause)
        if names & REFUSED_LATER:
            return "unknown"
        if names & SAID_SO or (only_write and _is_refusal(cause, names)):
            return "fail"
    return "unknown"


def _is_refusal(error: BaseException, names: frozenset[str]) -> bool:
    state = _sqlstate(error)
    if names & REFUSED or (state is not None and state.startswith(SQLSTATE_FAILED)):
        return True
    text = str(error).lower()
    return "sqlite3.OperationalError" in names and any(part in text for part in SQLITE_FAILED)


def of_read(error: BaseException) -> Failure:
    for cause in _causes(error):
        if _wrapped(cause) is not None:
            continue  # SQLAlchemy has one name for all that a driver may raise, whoever answered
        if _names(cause) & NOBODY_ANSWERED:
            return "unknown"
        if "sqlite3.OperationalError" in _names(cause) and "locked" in str(cause):
            return "unknown"
    return "fail"


def describe(error: BaseException, scrub: Callable[[str], str] = str) -> str:
    """The error in one line; `scrub` removes secrets before the line is cut."""
    text = " ".join(scrub(str(error)).split()).encode("utf-8", "backslashreplace").decode()
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def kinds(error: BaseException) -> list[str]:
    """The names of the error's class and its bases."""
    return [kind.__name__ for kind in type(error).__mro__]


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it wraps: SQLAlchemy's `orig`, and explicit causes."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found and len(found) < 8:
        found.append(current)
        current = _wrapped(current) or current.__cause__
    return found


def _wrapped(error: BaseException) -> BaseException | None:
    wrapped: Any = getattr(error, "orig", None)
    return wrapped if isinstance(wrapped, BaseException) else None


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None
