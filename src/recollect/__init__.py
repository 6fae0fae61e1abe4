"""LLM memory that is provably not forgotten.

    from recollect import Message, open_store

    async with open_store("sqlite:///memory.db") as store:
        await store.append("session-1", [Message("user", "I am Xiao Li")])
        await store.history("session-1", last=100)

`recollect.sync` has the same without async. `recollect.verify` is the kit that breaks stores.
"""

from recollect.errors import (
    CannotOpen,
    Conflict,
    DurabilityUnavailable,
    EngineUnavailable,
    MissingExtra,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Refused,
    StoreReplaced,
    Unreadable,
)
from recollect.message import Damaged, Message
from recollect.opening import open_store
from recollect.store import (
    Durability,
    Expiring,
    Listable,
    MemoryStore,
    Receipt,
    SessionState,
    Store,
    Stored,
)

__version__ = "0.1.0"

__all__ = [
    "CannotOpen",
    "Conflict",
    "Damaged",
    "Durability",
    "DurabilityUnavailable",
    "EngineUnavailable",
    "Expiring",
    "Listable",
    "MemoryStore",
    "Message",
    "MissingExtra",
    "NotWritten",
    "OutcomeUnknown",
    "Receipt",
    "RecollectError",
    "Refused",
    "SessionState",
    "Store",
    "StoreReplaced",
    "Stored",
    "Unreadable",
    "open_store",
]
