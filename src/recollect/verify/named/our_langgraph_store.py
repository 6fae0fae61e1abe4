"""Our store for LangGraph, used as an application would: what belongs together is one item, read, changed and put."""

from functools import cache
from typing import Any

from recollect.adapters.langgraph import RecollectStore
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import address_of


class SavedItems:
    """The messages of a session as one item. LangGraph's interface has no compare-and-set, so one writer at a time."""

    traits = ("single_writer",)
    loss_errors = ("Unreadable",)

    def __init__(self, store: RecollectStore) -> None:
        self._store = store

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        self._store.put(("verify", "sessions"), session, {"messages": messages})

    def load(self, session: str) -> list[dict[str, Any]]:
        item = self._store.get(("verify", "sessions"), session)
        return [] if item is None else list(item.value["messages"])

    def close(self) -> None:
        self._store.close()


@cache
def _items(address: str, witness: str | None) -> SavedItems:
    return SavedItems(RecollectStore(address, witness=witness))


def factory(endpoint: Endpoint) -> SavedItems:
    return _items(address_of(endpoint), endpoint.settings.get("witness"))
