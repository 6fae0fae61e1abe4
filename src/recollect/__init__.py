"""LLM memory that is provably not forgotten.

    from recollect import Message, open_store

    async with open_store("sqlite:///memory.db") as store:
        await store.append("session-1", [Message("user", "I am Xiao Li")])
        await store.history("session-1", last=100)

`recollect.sync` offers the same without async. `recollect.verify` is the kit that breaks stores;
`@recollect.interleaved` runs an asynchronous test in every order of its tasks.

Names are imported when first used, so a test suite that merely has our pytest plugin installed pays nothing for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Protocol, overload

    from recollect.erasure import Erasure
    from recollect.errors import (
        CannotOpen,
        Conflict,
        CredentialsRefused,
        DurabilityUnavailable,
        EngineUnavailable,
        MissingExtra,
        NotFound,
        NotWritten,
        OutcomeUnknown,
        RecollectError,
        Refused,
        StoreClosed,
        StoreReplaced,
        TurnReused,
        Unreadable,
    )
    from recollect.message import Damaged, Message
    from recollect.opening import open_store
    from recollect.store import (
        Describable,
        Description,
        Durability,
        Erasable,
        Expiring,
        Findable,
        Forkable,
        Listable,
        MemoryStore,
        Positioned,
        Receipt,
        Replaceable,
        Retractable,
        SessionState,
        Spanning,
        Store,
        Stored,
    )

    AsyncTest = Callable[..., Coroutine[Any, Any, None]]

    class _Interleaved(Protocol):
        """The decorator's signature. The decorator itself lives in the kit, which the library does not import."""

        @overload
        def __call__(self, test: AsyncTest, /) -> Callable[..., None]: ...
        @overload
        def __call__(
            self,
            *,
            seconds: float = ...,
            bound: int = ...,
            engine: str | None = ...,
            schedule: str | None = ...,
        ) -> Callable[[AsyncTest], Callable[..., None]]: ...

    interleaved: _Interleaved

__version__ = "0.1.0"

__all__ = [
    "CannotOpen",
    "Conflict",
    "CredentialsRefused",
    "Damaged",
    "Describable",
    "Description",
    "Durability",
    "DurabilityUnavailable",
    "EngineUnavailable",
    "Erasable",
    "Erasure",
    "Expiring",
    "Findable",
    "Forkable",
    "Listable",
    "MemoryStore",
    "Message",
    "MissingExtra",
    "NotFound",
    "NotWritten",
    "OutcomeUnknown",
    "Positioned",
    "Receipt",
    "RecollectError",
    "Refused",
    "Replaceable",
    "Retractable",
    "SessionState",
    "Spanning",
    "Store",
    "StoreClosed",
    "StoreReplaced",
    "Stored",
    "TurnReused",
    "Unreadable",
    "interleaved",
    "open_store",
]

_HOMES = {
    "message": ("Damaged", "Message"),
    "erasure": ("Erasure",),
    "opening": ("open_store",),
    "verify.explore.interleavings.own_test": ("interleaved",),
    "store": (
        "Describable",
        "Description",
        "Durability",
        "Erasable",
        "Expiring",
        "Findable",
        "Forkable",
        "Listable",
        "MemoryStore",
        "Positioned",
        "Receipt",
        "Replaceable",
        "Retractable",
        "SessionState",
        "Spanning",
        "Store",
        "Stored",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    found = getattr(import_module(f"recollect.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
