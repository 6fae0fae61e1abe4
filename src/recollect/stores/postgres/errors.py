"""What asyncpg's errors mean: was it written, and can the engine be reached?

Each statement is its own transaction, so an error that the engine reports for it means that it was rolled back.
The exceptions are errors of an engine that is ending (57P01 to 57P03): they can come after the commit, before the
answer. Whatever is not listed as not written is `OutcomeUnknown`. Messages quote the engine, never the address with
its password.
"""

import asyncpg

from recollect.errors import (
    CredentialsRefused,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    StoreReplaced,
    Unreadable,
)

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a connection whose server was killed in the middle of a statement
    OSError,
)
"""Everything that asyncpg itself raises. Its internal errors are not interface errors."""

UNREACHABLE: tuple[type[BaseException], ...] = (
    OSError,  # includes TimeoutError
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""No answer from the engine, or none that lets us in."""

NOT_WRITTEN: tuple[type[BaseException], ...] = (
    asyncpg.InterfaceError,  # raised by the driver before anything is sent
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.ProgramLimitExceededError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # lock_timeout
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidTransactionStateError,
    asyncpg.SyntaxOrAccessError,  # no right to write
    asyncpg.exceptions.DataError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresIOError,
    asyncpg.InternalServerError,
)

TRY_AGAIN: tuple[type[BaseException], ...] = (
    asyncpg.QueryCanceledError,  # statement_timeout
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InsufficientResourcesError,
)
"""A read that the engine abandoned: what is stored is fine."""

POOLED: tuple[type[BaseException], ...] = (
    asyncpg.DuplicatePreparedStatementError,
    asyncpg.InvalidSQLStatementNameError,
)
"""Another connection's prepared statement is there, or ours is missing. Raised before the statement runs."""

POOLED_CURE = (
    "a pooler in transaction mode gives this connection to others: use PgBouncer's session mode, or PgBouncer 1.21 or "
    "newer with max_prepared_statements above 0, or add ?prepared=no to the address"
)

STATEMENT_MODE_CURE = "a pooler in statement mode refuses transactions: use its session or transaction mode"

GONE: tuple[type[BaseException], ...] = (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)
"""The store's tables or functions are missing, although they were there when it was opened."""


def short_reason(error: BaseException | None) -> str:
    """The engine's own words in one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, asyncpg.InternalClientError):  # the driver's message is about its internal states
        return "the connection was closed while it was in use"
    lines = str(error).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        reason += " (the engine has become a standby, or default_transaction_read_only is on)"
    return reason


ROW_CHANGED = "RC003"
"""Raised by every function that changes a session whose row is not intact, before it does."""


def row_changed() -> Unreadable:
    return Unreadable(
        "the session's row has changed on the disk, or was changed by something other than recollect: which messages "
        "are its own is not known. Restore it from a backup"
    )


def write_error(error: BaseException) -> RecollectError:
    """The error to raise for a write that failed with this one."""
    reason = short_reason(error)
    if isinstance(error, EngineUnavailable | CredentialsRefused) and not isinstance(error, NotWritten):
        return NotWritten(f"{error}; nothing was written")
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, GONE):
        return _gone(reason)
    if getattr(error, "sqlstate", None) == ROW_CHANGED:
        return NotWritten(f"{row_changed()}; nothing was written")
    if isinstance(error, POOLED):
        return NotWritten(f"PostgreSQL: {reason}; nothing was written; {POOLED_CURE}")
    if isinstance(error, NOT_WRITTEN) and not isinstance(error, TimeoutError):
        return NotWritten(f"PostgreSQL: {reason}; nothing was written, safe to retry")
    return OutcomeUnknown(f"PostgreSQL: {reason}; written or not")


def read_error(error: BaseException) -> RecollectError:
    reason = short_reason(error)
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, GONE):
        return _gone(reason)
    if isinstance(error, POOLED):
        return EngineUnavailable(f"PostgreSQL: {reason}: {POOLED_CURE}")
    if isinstance(error, (*UNREACHABLE, *TRY_AGAIN)):
        return EngineUnavailable(f"PostgreSQL: {reason}")
    return Unreadable(f"PostgreSQL: {reason}")


def _gone(reason: str) -> StoreReplaced:
    return StoreReplaced(
        f"the store's schema is gone ({reason}): dropped, or another database answers at this address"
    )
