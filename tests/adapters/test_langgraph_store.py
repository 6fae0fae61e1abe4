"""`RecollectStore` answers as LangGraph's own in-memory store does."""

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from recollect import Message, NotWritten, Refused, StoreClosed, open_store
from recollect.adapters.langgraph import RecollectStore
from recollect.recall.embedding import HashingEmbedder
from recollect.recall.recall import Recall
from tests.adapters.oracle import machine
from tests.contract.conftest import Place

LABELS = st.sampled_from(["a", "b", "c/d", "~1"])
NAMESPACES = st.lists(LABELS, max_size=2).map(tuple)
KEYS = st.sampled_from(["k", "l", "a/b", "~"])
TEXTS = st.sampled_from(["red apples", "green apples", "a red car", "rain and snow"])
VALUES = st.fixed_dictionaries(
    {"text": TEXTS, "n": st.integers(0, 5)},
    optional={"more": st.dictionaries(st.text(max_size=3), st.none() | st.integers(), max_size=2)},
)
FILTERS = st.none() | st.one_of(
    st.fixed_dictionaries({"n": st.integers(0, 5)}),
    st.fixed_dictionaries(
        {"n": st.dictionaries(st.sampled_from(["$gt", "$lte", "$ne", "$eq"]), st.integers(0, 5))}
    ),
    st.fixed_dictionaries(
        {"more": st.dictionaries(st.text(max_size=3), st.none() | st.integers(), max_size=1)}
    ),
)


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """Our embedder, as LangGraph takes one."""
    return [vector.tolist() for vector in asyncio.run(HashingEmbedder().embed(list(texts)))]


class Stores(RuleBasedStateMachine):
    """Beside `InMemoryStore` with the same embedder. Each example is below a namespace of its own."""

    def __init__(self, ours: RecollectStore, ranked: bool) -> None:
        super().__init__()
        self.ours = ours
        config: Any = {"dims": HashingEmbedder().dimension, "embed": embedded, "fields": ["text"]}
        self.oracle = InMemoryStore(index=config if ranked else None)
        self.ranked = ranked
        self.root = uuid.uuid4().hex

    def _at(self, namespace: tuple[str, ...]) -> tuple[str, ...]:
        return (self.root, *namespace)

    @rule(
        namespace=NAMESPACES,
        key=KEYS,
        value=VALUES,
        index=st.sampled_from([None, None, False, ["text", "n"]]),
    )
    def put(self, namespace: tuple[str, ...], key: str, value: dict[str, Any], index: Any) -> None:
        if self.ranked and self.oracle.get(self._at(namespace), key) is not None:
            self.oracle.delete(self._at(namespace), key)  # it would keep vectors of the value before
        for store in (self.ours, self.oracle):
            store.put(self._at(namespace), key, value, index=index)

    @rule(namespace=NAMESPACES, key=KEYS)
    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        for store in (self.ours, self.oracle):
            store.delete(self._at(namespace), key)

    @rule(namespace=NAMESPACES, wanted=FILTERS)
    def search(self, namespace: tuple[str, ...], wanted: dict[str, Any] | None) -> None:
        ours, oracle = (
            store.search(self._at(namespace), filter=wanted, limit=100) for store in (self.ours, self.oracle)
        )
        assert _shown(ours) == _shown(oracle)

    @rule(namespace=NAMESPACES, query=TEXTS, wanted=FILTERS)
    def search_by_meaning(
        self, namespace: tuple[str, ...], query: str, wanted: dict[str, Any] | None
    ) -> None:
        if not self.ranked:
            return
        ours, oracle = (
            store.search(self._at(namespace), query=query, filter=wanted, limit=100)
            for store in (self.ours, self.oracle)
        )
        assert _shown(ours) == _shown(oracle)
        assert _scores(ours) == pytest.approx(_scores(oracle), abs=1e-3)
        best = self.ours.search(self._at(namespace), query=query, filter=wanted, limit=2)
        assert _scores(best) == pytest.approx(_scores(ours)[:2], abs=1e-6)

    @rule(depth=st.none() | st.integers(1, 3), middle=st.sampled_from([None, "*", "a", "c/d"]))
    def list_namespaces(self, depth: int | None, middle: str | None) -> None:
        prefix = (self.root,) if middle is None else (self.root, middle)
        ours, oracle = (
            set(store.list_namespaces(prefix=prefix, max_depth=depth)) for store in (self.ours, self.oracle)
        )
        # The oracle also names those that were only asked for, or have nothing left.
        held = {item.namespace for item in self.oracle.search((self.root,), limit=100)}
        if middle is not None:
            held = {one for one in held if len(one) > 1 and middle in ("*", one[1])}
        assert ours == oracle & {one[:depth] for one in held}

    @rule(key=KEYS, value=VALUES)
    def batch(self, key: str, value: dict[str, Any]) -> None:
        place = (self.root, "batch")
        ops = [
            GetOp(place, key),
            PutOp(place, key, {"text": "first", "n": 0}, index=False),
            GetOp(place, key),
            PutOp(place, key, value, index=False),
            SearchOp(place, limit=100),
        ]
        ours, oracle = (store.batch(ops) for store in (self.ours, self.oracle))
        assert [_value(one) for one in ours[:4]] == [_value(one) for one in oracle[:4]]
        assert _shown(ours[4]) == _shown(oracle[4])

    @invariant()
    def the_same_is_there(self) -> None:
        for namespace in ((), ("a",), ("c/d",)):
            for key in ("k", "a/b"):
                ours, oracle = (store.get(self._at(namespace), key) for store in (self.ours, self.oracle))
                assert _value(ours) == _value(oracle)


def _value(item: Any) -> Any:
    return None if item is None else (item.namespace, item.key, item.value)


def _shown(items: Any) -> list[str]:
    return sorted(str(_value(item)) for item in items)


def _scores(items: Any) -> list[float]:
    return [item.score for item in items if item.score is not None]


@pytest.fixture
def ranked(place: Place, tmp_path: Path) -> Iterator[RecollectStore]:
    with RecollectStore(place.url, recall=f"sqlite:///{tmp_path}/recall.db", fields=["text"]) as store:
        yield store


def test_it_answers_as_the_in_memory_store(ranked: RecollectStore) -> None:
    machine(lambda: Stores(ranked, True), steps=15)


def test_it_answers_as_the_in_memory_store_without_an_index(place: Place) -> None:
    with RecollectStore(place.url) as store:
        machine(lambda: Stores(store, False), steps=15)


@pytest.fixture
def files(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db"


def test_pages_are_the_latest_first_and_do_not_overlap(files: str) -> None:
    with RecollectStore(files) as store:
        for number in range(50):
            store.put(("n",), str(number), {"n": number})
        store.put(("n",), "7", {"n": 7})
        pages = [store.search(("n",), limit=20, offset=start) for start in (0, 20, 40, 60)]
    found = [item.key for page in pages for item in page]
    assert [len(page) for page in pages] == [20, 20, 10, 0]
    assert found == ["7", *[str(number) for number in reversed(range(50)) if number != 7]]


def test_pages_of_a_ranked_search_do_not_overlap_and_end(files: str) -> None:
    """Also where items follow that are not ranked."""
    with RecollectStore(files, recall=files) as store:
        for number in range(5):
            store.put(("n",), f"ranked {number}", {"text": "rain"})
        for number in range(7):
            store.put(("n",), f"other {number}", {"text": "rain"}, index=False)
        starts = range(0, 16, 4)
        pages = [store.search(("n",), query="rain", limit=4, offset=start) for start in starts]
    found = [item.key for page in pages for item in page]
    assert [len(page) for page in pages] == [4, 4, 4, 0]
    assert len(set(found)) == 12
    assert all(key.startswith("ranked") for key in found[:5])


def test_a_limit_of_nothing_finds_nothing(files: str) -> None:
    with RecollectStore(files, recall=files) as store:
        store.put(("n",), "k", {"text": "rain"})
        assert store.search(("n",), limit=0) == store.search(("n",), query="rain", limit=0) == []


def test_a_change_keeps_the_time_of_the_first_and_is_found_by_its_new_text_only(files: str) -> None:
    with RecollectStore(files, recall=files) as store:
        store.put(("n",), "k", {"text": "rain"})
        first = store.get(("n",), "k")
        store.put(("n",), "k", {"text": "apples"})
        second = store.get(("n",), "k")
        assert first is not None
        assert second is not None
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at
        [rain] = store.search(("n",), query="rain")
        [apples] = store.search(("n",), query="apples")
        assert cast(float, apples.score) > cast(float, rain.score)


def test_what_an_interrupted_change_left_in_recall_is_not_shown(
    files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecollectStore(files, recall=files, fields=["text"]) as store:
        store.put(("n",), "k", {"text": "rain"})
        with monkeypatch.context() as patch:
            patch.setattr(Recall, "forget", _dies)  # after the value, before its old texts are gone
            with pytest.raises(RuntimeError, match="dies here"):
                store.put(("n",), "k", {"text": "snow"})
        for number in range(40):
            store.put(("n",), f"other {number}", {"text": "snow and ice"})
        best = store.search(("n",), query="rain", limit=41)
        assert {item.key: item.value["text"] for item in best}["k"] == "snow"
        assert len(best) == 41


def test_a_value_is_stored_even_if_its_old_texts_stay_in_recall(
    files: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with RecollectStore(files, recall=files) as store:
        store.put(("n",), "k", {"text": "rain"})
        with monkeypatch.context() as patch:
            patch.setattr(Recall, "forget", _refused)
            store.put(("n",), "k", {"text": "snow"})
        assert [item.value for item in store.search(("n",), query="rain")] == [{"text": "snow"}]
    assert "texts of an earlier value of item 'k' stay in recall: the disk is full" in caplog.text


async def _refused(*_: Any) -> int:
    raise NotWritten("the disk is full")


async def _dies(*_: Any) -> int:
    raise RuntimeError("the process dies here")


def test_it_is_there_after_opening_again_and_others_can_read_it(files: str) -> None:
    with RecollectStore(files, recall=files) as store:
        store.put(("users", "li"), "likes", {"text": "green apples"})
    with RecollectStore(files, recall=files) as store:
        [found] = store.search(("users",), query="apples")
        assert (found.key, found.value) == ("likes", {"text": "green apples"})

    async def text() -> str:
        async with open_store(files) as plain:
            [item] = await plain.history("langgraph-store/users/li/likes")
            return cast(Message, item.message).text

    assert asyncio.run(text()) == "green apples"


def test_a_query_without_recall_is_refused(files: str) -> None:
    with RecollectStore(files) as store, pytest.raises(Refused, match="recall="):
        store.search(("n",), query="apples")
    with pytest.raises(Refused, match="recall="):
        RecollectStore(files, embedder=HashingEmbedder())


def test_what_is_not_json_is_refused_before_anything_is_written(files: str) -> None:
    with RecollectStore(files, recall=files, fields=["text"]) as store:
        with pytest.raises(Refused):
            store.put(("n",), "k", {"text": "rain", "f": object()})
        with pytest.raises(Refused, match="value: a dictionary"):
            store.put(("n",), "k", cast("dict[str, Any]", "rain"))
        assert store.get(("n",), "k") is None
        assert store.search(("n",), query="rain") == []


def test_of_a_batch_with_something_wrong_nothing_is_written(files: str) -> None:
    with RecollectStore(files) as store:
        for wrong in ({"f": object()}, "rain"):
            with pytest.raises(Refused):
                store.batch([PutOp(("n",), "k", {"text": "rain"}), PutOp(("n",), "l", cast(Any, wrong))])
        assert store.search(("n",)) == []


def test_a_deletion_that_broke_is_finished_by_the_next(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecollectStore(files, recall=files) as store:
        store.put(("n",), "k", {"text": "a secret"})
        with monkeypatch.context() as patch:
            patch.setattr(Recall, "forget", _dies)
            with pytest.raises(RuntimeError, match="dies here"):
                store.delete(("n",), "k")
        store.delete(("n",), "k")
        assert store.get(("n",), "k") is None
        recall = cast(Recall, store._recall)
        assert store._loop.wait(recall.memories("langgraph-store/n")) == []


def test_namespaces_are_checked_also_in_batches(files: str) -> None:
    with RecollectStore(files) as store, pytest.raises(InvalidNamespaceError):
        store.batch([GetOp(("a.b",), "k")])


def test_conditions_of_namespaces(files: str) -> None:
    with RecollectStore(files) as store:
        for namespace in (("a", "b", "c"), ("a", "x", "c"), ("a", "x"), ("b",)):
            store.put(namespace, "k", {})
        assert store.list_namespaces(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
        assert store.list_namespaces(suffix=("x", "*")) == [("a", "x", "c")]
        assert store.list_namespaces(prefix=("a",), limit=1, offset=1) == [("a", "x")]
        assert MatchCondition("prefix", ("a",)).path == ("a",)


def test_threads_and_loops_share_it(files: str) -> None:
    with RecollectStore(files) as store:
        threads = [
            threading.Thread(target=store.put, args=(("n",), str(number), {"n": number}))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def count() -> int:
            return len(await store.asearch(("n",), limit=100))

        assert [asyncio.run(count()) for _ in range(2)] == [8, 8]
    with pytest.raises(StoreClosed):
        store.get(("n",), "0")


class State(TypedDict):
    said: str


async def test_a_graph_remembers_in_another_process(files: str) -> None:
    """Two graphs that share nothing but the files."""

    def remember(state: State) -> dict[str, str]:
        get_store().put(("li",), "said", {"text": state["said"]})
        return {}

    def recall(state: State) -> dict[str, str]:
        [found] = get_store().search(("li",), query=state["said"])
        return {"said": found.value["text"]}

    answers = []
    for node, said in ((remember, "I like green apples."), (recall, "apples")):
        async with RecollectStore(files, recall=files) as store:
            builder = StateGraph(State)
            builder.add_node("node", cast(Any, node))
            builder.add_edge(START, "node")
            builder.add_edge("node", END)
            answers.append(await builder.compile(store=store).ainvoke({"said": said}))
    assert answers[1] == {"said": "I like green apples."}


def test_versions_that_the_engine_lost_do_not_hide_the_one_it_has(engine_of: Any) -> None:
    """With `appendfsync everysec` the last second can be lost. What was put before is not lost with it."""
    url = engine_of("redis").endpoint.url
    name = uuid.uuid4().hex
    with RecollectStore(url) as store, closing(redis.Redis.from_url(url)) as engine:
        store.put((name,), "k", {"v": 1})
        before: dict[Any, Any] = {key: engine.dump(key) for key in engine.keys(f"*{name}*")}
        assert before
        store.put((name,), "k", {"v": 2})
        for key in engine.keys(f"*{name}*"):
            engine.delete(key)
        for key, value in before.items():
            engine.restore(key, 0, value)
        found = store.get((name,), "k")
        assert found is not None
        assert found.value == {"v": 1}
        assert [item.value for item in store.search((name,))] == [{"v": 1}]
