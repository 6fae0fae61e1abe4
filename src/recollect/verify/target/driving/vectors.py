"""Vector memories, as LangChain's vector stores have it: texts are added, and found again by similarity.

A session is a filter on the metadata, or has a store of its own. There is no order in such a memory, so none is judged:
what was found is sorted as it was written. A search is compared with the rows: with those that the store lists, if it
can list them (`get(where=…)`), else with those it has under the ids that it gave out (`get_by_ids`).
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

from recollect.verify.target.driving import Course, Driven, play
from recollect.verify.target.interfaces import parameters
from recollect.verify.target.native_messages import NumberedTexts

SESSION, NUMBER = "session", "n"
QUERY = "note"
FIRST_K = 200


class Vectors(Driven):
    """One store for all sessions."""

    interface = NumberedTexts()
    keyed = True

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._given: dict[str, list[str]] = defaultdict(list)
        self._lists = "where" in parameters(getattr(store, "get", None))
        self._by_ids = _implements(store, "get_by_ids")
        self._fetches = "fetch_k" in parameters(store.similarity_search)
        if self._lists or self._by_ids:
            self.search = self._search

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.store.add_texts)

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        texts = [one["content"] for one in messages]
        about = [{SESSION: session, NUMBER: one[NUMBER]} for one in messages]
        ids = yield self.store.add_texts(texts, metadatas=about)
        self._given[session] += [str(one) for one in ids or ()]

    def reading(self, session: str) -> Course[list[Any]]:
        if self._lists:
            return (yield from self._listed(session))
        return _sorted((yield from self._found(session)))

    def _search(self, session: str) -> Any:
        return play(self._searching(session))

    def _searching(self, session: str) -> Course[tuple[list[Any], list[Any]]]:
        """What came or went while the search ran is not compared."""
        if not self._lists:
            given = list(self._given[session])
            found = yield from self._found(session)
            known = dict.fromkeys([*given, *(str(one.id) for one in found if one.id is not None)])
            rows = yield self.store.get_by_ids(list(known))
            return _sorted(rows), _sorted(found)
        before = yield from self._listed(session)
        found = _sorted((yield from self._found(session)))
        after = yield from self._listed(session)
        during = set(found) - set(before)
        kept = set(after)
        return [*(one for one in before if one in kept), *(one for one in after if one in during)], found

    def _found(self, session: str) -> Course[list[Any]]:
        """Everything in the session: asks for more as long as the answer comes back full."""
        count = FIRST_K
        while True:
            options: dict[str, Any] = {"filter": {SESSION: session}} if self.keyed else {}
            if self._fetches:
                options["fetch_k"] = 100 * count  # what is filtered afterwards needs more to choose from
            found = list((yield self.store.similarity_search(QUERY, k=count, **options)))
            if len(found) < count:
                return found
            count *= 2

    def _listed(self, session: str) -> Course[list[Any]]:
        listed = yield self.store.get(where={SESSION: session} if self.keyed else None)
        rows = zip(listed["documents"], listed["metadatas"], strict=True)
        return [text for text, _ in sorted(rows, key=lambda row: int(row[1][NUMBER]))]


class VectorsOfSession(Vectors):
    """A store for each session."""

    keyed = False

    def append(self, messages: Any) -> Any:  # type: ignore[override]
        return super().append("", messages)

    def history(self) -> Any:  # type: ignore[override]
        return super().history("")

    def _search(self) -> Any:  # type: ignore[override]
        return super()._search("")


def _implements(store: Any, name: str) -> bool:
    """Whether it has a method of its own. That of LangChain's base class is there in every store, and only raises."""
    method = getattr(type(store), name, None) or getattr(store, name, None)
    return callable(method) and getattr(method, "__module__", "") != "langchain_core.vectorstores.base"


def _sorted(found: list[Any]) -> list[Any]:
    return [one.page_content for one in sorted(found, key=lambda one: int(one.metadata[NUMBER]))]
