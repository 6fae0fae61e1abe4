"""`RecollectStore`: LangGraph's long-term memory, in a store of ours, searched by `recall`.

    from recollect.adapters.langgraph import RecollectStore

    with RecollectStore("sqlite:///memory.db", recall="sqlite:///memory.db") as store:
        graph = builder.compile(store=store)

An item is a session of the store: its id is the namespace and the key, its one message is the value. The store is the
truth. Recall holds the texts of each version of a value under the item's namespace, and a hit counts only if the item
still has that version. The texts are stored before the value, so an item that is there can be found; what an
interrupted change leaves behind in recall is never shown.

Like `RecollectSaver`, one store serves any number of threads and event loops.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

from recollect.adapters.carrying import CALL_AGAIN, damage_note, tried
from recollect.adapters.langgraph.own_loop import OwnLoop
from recollect.composite import composite_id
from recollect.errors import MissingExtra, RecollectError, Refused, Unreadable, shown
from recollect.message import Damaged, Message, encode, new_id
from recollect.opening import open_store
from recollect.store import OpenOptions, Store, Stored

if TYPE_CHECKING:  # recall needs numpy; a store without ranking does not
    from recollect.recall.embedding import Embedder
    from recollect.recall.memory import Hit
    from recollect.recall.recall import Recall

log = logging.getLogger("recollect")

ROOT = "langgraph-store"
"""What the ids of all items begin with."""

RANKED_MAX = 10_000
"""The most hits that recall gives for one query."""

READ_AT_ONCE = 32
"""How many items a search reads at the same time."""

Namespace = tuple[str, ...]


class ItemId(NamedTuple):
    namespace: Namespace
    key: str

    @property
    def session(self) -> str:
        return composite_id(ROOT, *self.namespace, self.key)

    @classmethod
    def of(cls, session: str) -> "ItemId":
        parts = [part.replace("~1", "/").replace("~0", "~") for part in session.split("/")]
        return cls(tuple(parts[1:-1]), parts[-1])


class KeptItem(NamedTuple):
    """An item as it is stored now."""

    id: ItemId
    message: Message

    @property
    def value(self) -> dict[str, Any]:
        value: Any = self.message.content[0]
        return dict(value)

    @property
    def rows(self) -> list[int]:
        """Where its texts are in recall."""
        return list(self.message.metadata.get("rows", []))

    @property
    def times(self) -> dict[str, datetime]:
        created = self.message.metadata.get("created", self.message.timestamp)
        return {"created_at": _moment(created), "updated_at": _moment(self.message.timestamp)}

    def item(self) -> Item:
        return Item(value=self.value, key=self.id.key, namespace=self.id.namespace, **self.times)

    def found(self, score: float | None) -> SearchItem:
        return SearchItem(self.id.namespace, self.id.key, self.value, score=score, **self.times)


class RecollectStore(BaseStore):
    """See the module. Opened on creation; `close` it, or use it in a ``with`` or ``async with``.

    With `recall`, the address of a long-term memory (``sqlite:///…`` or ``postgresql://…``), a search with a query is
    ranked by `embedder`, through `index` if one is given, both as in `open_recall`. `fields` are the paths in a value
    that are searched, "$" for all of it. The other options are those of `open_store`.
    """

    supports_ttl = False

    def __init__(
        self,
        url: str,
        *,
        recall: str | None = None,
        index: str | None = None,
        embedder: "Embedder | None" = None,
        fields: Sequence[str] = ("$",),
        **options: Unpack[OpenOptions],
    ) -> None:
        if recall is None and (index is not None or embedder is not None):
            raise Refused(
                "index, embedder: for a ranked search, which needs recall=, such as sqlite:///memory.db"
            )
        self._fields = list(fields)
        self._recall: Recall | None = None
        self._loop = OwnLoop("store")
        try:
            self._store: Store = self._loop.wait(_opened(url, options))
            if recall is not None:
                self._recall = self._loop.wait(_opened_recall(recall, index, embedder))
        except BaseException:
            self._loop.end()
            raise

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads first, then the changes; of several changes to one key the last counts."""
        return self._loop.wait(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch`."""
        return await self._loop.reach(self._batch(list(ops)))

    def close(self) -> None:
        """Closes the connections. What was acknowledged is not affected."""
        self._loop.close(self._closing)

    async def aclose(self) -> None:
        """`close`."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> "RecollectStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "RecollectStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # ---- on the store's loop

    async def _closing(self) -> None:
        try:
            if self._recall is not None:
                await self._recall.close()
        finally:
            await self._store.close()

    async def _batch(self, ops: list[Op]) -> list[Result]:
        results: list[Result] = []
        puts: dict[ItemId, PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, GetOp):
                kept = await self._kept(ItemId(op.namespace, op.key))
                results.append(None if kept is None else kept.item())
            elif isinstance(op, SearchOp):
                results.append(await self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._namespaces(op))
            elif isinstance(op, PutOp):
                _check_value(op.value)  # of all of them, before anything is written
                puts[ItemId(op.namespace, op.key)] = op
                results.append(None)
            else:
                raise Refused(f"ops: a get, search, list or put of LangGraph, not {type(op).__name__}")
        for item_id, op in puts.items():
            await self._put(item_id, op)
        return results

    async def _kept(self, item_id: ItemId) -> KeptItem | None:
        items = await self._store.history(item_id.session, last=1)
        if items and isinstance(items[0].message, Damaged):
            raise Unreadable(f"item {item_id.key!r} of {item_id.namespace}: {items[0].message.reason}")
        return _kept(item_id, items)

    async def _put(self, item_id: ItemId, op: PutOp) -> None:
        before = _kept(item_id, await self._store.history(item_id.session, last=1))
        if op.value is None:
            await self._forget_texts(item_id, before)  # first, because the item says what recall has of it
            await tried(lambda _: self._store.forget(item_id.session), CALL_AGAIN)
            return
        await self._write(item_id, op.value, self._texts(op), before)
        try:
            await self._forget_texts(item_id, before)
        except RecollectError as error:  # the value is stored, and an error would say that it is not
            log.warning("texts of an earlier value of item %r stay in recall: %s", item_id.key, error)

    async def _forget_texts(self, item_id: ItemId, before: KeptItem | None) -> None:
        recall, user = self._recall, _user(item_id.namespace)
        if recall is None or before is None:
            return
        for sequence in before.rows:
            await tried(lambda _, sequence=sequence: recall.forget(user, sequence), CALL_AGAIN)  # type: ignore[misc]

    async def _write(
        self, item_id: ItemId, value: Mapping[str, Any], texts: list[str], before: KeptItem | None
    ) -> None:
        version = new_id()
        bare = Message("memory", [dict(value)], id=version)
        created = bare.timestamp if before is None else before.times["created_at"].timestamp()
        rows = await self._remembered(item_id, texts, version)
        metadata = {"created": created, "rows": rows}
        message = Message(bare.role, bare.content, bare.timestamp, metadata, version)
        await tried(lambda turn: self._store.replace(item_id.session, [message], turn=turn), CALL_AGAIN)

    async def _remembered(self, item_id: ItemId, texts: list[str], version: str) -> list[int]:
        recall = self._recall
        if recall is None or not texts:
            return []
        session = composite_id(item_id.key, version)
        user = _user(item_id.namespace)
        remembered = await tried(lambda turn: recall.add(user, texts, session=session, turn=turn), CALL_AGAIN)
        return [memory.sequence for memory in remembered.memories]

    def _texts(self, op: PutOp) -> list[str]:
        if op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [text for path in paths for text in get_text_at_path(op.value, path)]

    # ---- searching

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        if not op.query:
            matching: list[KeptItem] = []
            async for kept in self._under(op.namespace_prefix):
                if _fits(kept.value, op.filter):
                    matching.append(kept)
                if len(matching) >= op.offset + op.limit:
                    break
            return [kept.found(None) for kept in matching[op.offset : op.offset + op.limit]]
        if self._recall is None:
            raise Refused(
                "query: this store ranks nothing; open it with recall=, such as sqlite:///memory.db"
            )
        ranked = await self._ranked(self._recall, op)
        wanted = op.offset + op.limit
        found = [kept.found(score) for kept, score in ranked]
        if len(found) < wanted:
            seen = {kept.id for kept, _ in ranked}
            async for kept in self._under(op.namespace_prefix):
                if kept.id not in seen and not kept.rows and _fits(kept.value, op.filter):
                    found.append(kept.found(None))
                if len(found) == wanted:
                    break
        return found[op.offset :]

    async def _ranked(self, recall: "Recall", op: SearchOp) -> list[tuple[KeptItem, float]]:
        """The items that match, best first; as many as the caller can see."""
        ids = [item_id async for item_id in self._ids(op.namespace_prefix)]
        namespaces = dict.fromkeys(item_id.namespace for item_id in ids)
        wanted = op.offset + op.limit
        ranked: list[tuple[KeptItem, float]] = []
        for namespace in namespaces:
            k = min(RANKED_MAX, max(16, 2 * wanted))
            while True:
                search = await recall.search(_user(namespace), op.query or "", k)
                best = await self._current(namespace, search.hits, lambda kept: _fits(kept.value, op.filter))
                if len(best) >= wanted or len(search.hits) < k or k == RANKED_MAX:
                    break
                # Versions that are gone, other texts of the same items, what the filter drops.
                k = min(RANKED_MAX, 4 * k)
            ranked += best
        ranked.sort(key=lambda pair: -pair[1])
        return ranked[:wanted]

    async def _current(
        self, namespace: Namespace, hits: "Sequence[Hit]", fits: Callable[[KeptItem], bool]
    ) -> list[tuple[KeptItem, float]]:
        """The items of these hits that still have the version that was found, each with its best score."""
        scores: dict[tuple[ItemId, str], float] = {}
        for hit in hits:
            key, _, version = (hit.memory.session or "").rpartition("/")
            place = (ItemId(namespace, key.replace("~1", "/").replace("~0", "~")), version)
            scores[place] = max(hit.score, scores.get(place, -1.0))
        kept = {item.id: item async for item in self._read([item_id for item_id, _ in scores])}
        return [
            (kept[item_id], score)
            for (item_id, version), score in scores.items()
            if item_id in kept and kept[item_id].message.id == version and fits(kept[item_id])
        ]

    async def _ids(self, prefix: Namespace) -> AsyncIterator[ItemId]:
        """What is in a namespace and in those below, the latest changed first."""
        start = composite_id(ROOT, *prefix, "")
        async for session in self._store.sessions(prefix=start, updated_after=0):
            yield ItemId.of(session)

    async def _under(self, prefix: Namespace) -> AsyncIterator[KeptItem]:
        waiting: list[ItemId] = []
        async for item_id in self._ids(prefix):
            waiting.append(item_id)
            if len(waiting) == READ_AT_ONCE:
                async for kept in self._read(waiting):
                    yield kept
                waiting = []
        async for kept in self._read(waiting):
            yield kept

    async def _read(self, ids: Sequence[ItemId]) -> AsyncIterator[KeptItem]:
        for start in range(0, len(ids), READ_AT_ONCE):
            some = ids[start : start + READ_AT_ONCE]
            read = await asyncio.gather(*[self._store.history(one.session, last=1) for one in some])
            for item_id, items in zip(some, read, strict=True):
                if (kept := _kept(item_id, items)) is not None:
                    yield kept

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        found = {item_id.namespace async for item_id in self._ids(())}
        matching = [one for one in found if all(_matches(match, one) for match in op.match_conditions or ())]
        if op.max_depth is not None:
            matching = list({one[: op.max_depth] for one in matching})
        return sorted(matching)[op.offset : op.offset + op.limit]


def _check_value(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise Refused(f"value: a dictionary, such as {{'text': 'green apples'}}; not {shown(value)}")
    encode(Message("memory", [dict(value)]))


def _kept(item_id: ItemId, items: Sequence[Stored]) -> KeptItem | None:
    """What is there. Behind it may be a note that the engine has lost newer versions, which others do not see."""
    if not items:
        return None
    message = items[0].message
    if isinstance(message, Damaged):
        log.error(
            "item %r of %s is left out: %s", item_id.key, item_id.namespace, damage_note(items[0], message)
        )
        return None
    return KeptItem(item_id, message)


def _user(namespace: Namespace) -> str:
    """The user under whom recall keeps a namespace's texts."""
    return composite_id(ROOT, *namespace)


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


async def _opened(url: str, options: OpenOptions) -> Store:
    return await open_store(url, **options)


async def _opened_recall(url: str, index: str | None, embedder: "Embedder | None") -> "Recall":
    try:
        from recollect.recall.opening import open_recall
    except ImportError as error:
        raise MissingExtra(f"recall needs {error.name}: pip install 'recollect[recall]'") from error
    return await open_recall(url, index=index, embedder=embedder)


# ---- LangGraph's conditions

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: bool(value == wanted),
    "$ne": lambda value, wanted: bool(value != wanted),
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def _fits(value: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    return all(_equals(value.get(name), one) for name, one in (wanted or {}).items())


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compares(value, name, one) for name, one in wanted.items())
        return isinstance(value, dict) and _fits(value, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_equals(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, name: str, wanted: Any) -> bool:
    if name not in _COMPARISONS:
        raise Refused(f"filter: {', '.join(_COMPARISONS)}, not {name!r}")
    try:
        return _COMPARISONS[name](value, wanted)
    except (TypeError, ValueError):
        return False  # what is not a number is neither above nor below one


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    end = len(namespace) - len(path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[end:]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
