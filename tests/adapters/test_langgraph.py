"""`RecollectSaver` passes LangGraph's own conformance suite, answers as its in-memory saver does, and drives graphs."""

import asyncio
import operator
import os
import sqlite3
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt

from recollect import CannotOpen, OutcomeUnknown, Refused, StoreClosed, Unreadable
from recollect.adapters import carrying
from recollect.adapters.langgraph import RecollectSaver, shelf, shelf_layout
from recollect.adapters.langgraph import saver as saver_module
from recollect.adapters.langgraph.shelf import key
from tests.adapters.oracle import machine
from tests.contract.conftest import Place


@pytest.fixture
def saver(place: Place) -> Iterator[RecollectSaver]:
    with RecollectSaver(place.url) as opened:
        yield opened


@pytest.fixture
def thread() -> str:
    """A thread that no other test uses: the engines are shared."""
    return f"thread-{uuid.uuid4()}"


# ---- LangGraph's own suite


async def test_it_passes_langgraphs_conformance_suite(place: Place) -> None:
    @checkpointer_test(name=f"RecollectSaver on {place.name}")
    async def made() -> AsyncGenerator[RecollectSaver, None]:
        saver = await asyncio.to_thread(RecollectSaver, place.url)
        yield saver
        await saver.aclose()

    report = await validate(made)
    failures = {name: result.failures for name, result in report.results.items() if result.passed is not True}
    assert not failures
    assert sum(result.tests_passed for result in report.results.values()) >= 60


# ---- beside the in-memory saver

VALUES = (
    st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)
)
CHANNELS = st.sampled_from(["messages", "a/b", "a~b", ""])
NAMESPACES = st.sampled_from(["", "child", "child|1"])
STATES = st.dictionaries(CHANNELS, VALUES, max_size=3)
TASKS = st.sampled_from(["t1", "t2"])
WRITTEN = st.lists(
    st.tuples(CHANNELS | st.sampled_from(["__error__", "__interrupt__", "__resume__"]), VALUES), max_size=3
)


class Savers(RuleBasedStateMachine):
    """The same checkpoints, forks, writes and deletions on both."""

    def __init__(self, saver: RecollectSaver) -> None:
        super().__init__()
        self.ours, self.oracle = saver, InMemorySaver()
        self.threads = [f"thread-{uuid.uuid4()}" for _ in range(2)]
        self.made: list[dict[str, Any]] = []
        self.number = 0

    def both(self, name: str, *given: Any, **options: Any) -> None:
        for saver in (self.ours, self.oracle):
            getattr(saver, name)(*given, **options)

    @rule(
        thread=st.integers(0, 1),
        name=NAMESPACES,
        state=STATES,
        fork=st.integers(0, 50),
        run=st.integers(0, 2),
    )
    def put(self, thread: int, name: str, state: dict[str, Any], fork: int, run: int) -> None:
        here: dict[str, Any] = {"thread_id": self.threads[thread], "checkpoint_ns": name}
        parents = [one for one in self.made if here.items() <= one.items()]
        parent = parents[fork % len(parents)] if parents else here
        self.number += 1
        versions: dict[str, Any] = dict.fromkeys(state, f"{self.number:032}.0")
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": f"{self.number:08}",
            "channel_values": state,
            "channel_versions": {**parent.get("versions", {}), **versions},
        }
        config: Any = {"configurable": {name: value for name, value in parent.items() if name != "versions"}}
        metadata: Any = {"source": "loop", "step": self.number, "run_id": f"run-{run}"}
        new = {**versions, "messages": f"{self.number:032}.0"} if self.number % 2 else versions
        checkpoint["channel_versions"].update(new)
        self.both("put", config, checkpoint, metadata, new)
        self.made.append(
            {**here, "checkpoint_id": checkpoint["id"], "versions": dict(checkpoint["channel_versions"])}
        )

    @rule(which=st.integers(0, 50), task=TASKS, writes=WRITTEN, path=st.sampled_from(["", "~a", "~b"]))
    def put_writes(self, which: int, task: str, writes: list[tuple[str, Any]], path: str) -> None:
        if self.made:
            chosen = self.made[which % len(self.made)]
            config = {"configurable": {name: value for name, value in chosen.items() if name != "versions"}}
            self.both("put_writes", config, writes, task, path)

    @rule(thread=st.integers(0, 1))
    def delete_a_thread(self, thread: int) -> None:
        self.both("delete_thread", self.threads[thread])
        self.made = [one for one in self.made if one["thread_id"] != self.threads[thread]]

    @rule(
        name=NAMESPACES,
        step=st.integers(0, 20),
        limit=st.none() | st.integers(0, 3),
        before=st.integers(0, 20),
    )
    def list_some(self, name: str, step: int, limit: int | None, before: int) -> None:
        config: Any = {"configurable": {"thread_id": self.threads[0], "checkpoint_ns": name}}
        bound: Any = {"configurable": {"checkpoint_id": f"{before:08}"}} if before else None
        for wanted in (None, {"step": step}, {"source": "loop"}, {"no such": 1}):
            listed = [
                list(saver.list(config, filter=wanted, before=bound, limit=limit))
                for saver in (self.ours, self.oracle)
            ]
            assert listed[0] == listed[1]

    @rule(which=st.integers(0, 50))
    def ask_for_deltas(self, which: int) -> None:
        if self.made:
            chosen = self.made[which % len(self.made)]
            config: Any = {
                "configurable": {name: value for name, value in chosen.items() if name != "versions"}
            }
            channels = ["messages", "a/b", "a~b", "never"]
            asked = [
                saver.get_delta_channel_history(config=config, channels=channels)
                for saver in (self.ours, self.oracle)
            ]
            assert asked[0] == asked[1]

    @invariant()
    def the_same_is_there(self) -> None:
        for thread in self.threads:
            for name in ("", "child", "child|1"):
                latest: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": name}}
                assert self.ours.get_tuple(latest) == self.oracle.get_tuple(latest)
                assert list(self.ours.list(latest)) == list(self.oracle.list(latest))


@pytest.mark.parametrize(("small", "inline"), [(64, 16_384), (14, 18)])
def test_it_answers_as_langgraphs_own_saver(
    saver: RecollectSaver, monkeypatch: pytest.MonkeyPatch, small: int, inline: int
) -> None:
    monkeypatch.setattr(shelf_layout, "SMALL_MAX", small)
    monkeypatch.setattr(shelf_layout, "INLINE_MAX", inline)  # so that values are in every kind of place
    machine(lambda: Savers(saver), steps=20)


def test_a_listing_goes_over_pages_and_threads(
    saver: RecollectSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "PAGE", 3)
    threads = [f"thread-{uuid.uuid4()}" for _ in range(2)]
    for thread in threads:
        for name in ("", "child"):
            for step in range(4):
                config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": name}}
                saver.put(config, {**empty_checkpoint(), "id": f"{step:04}"}, {"step": step}, {})
    listed = [one.config["configurable"] for one in saver.list(None)]
    ours = [one for one in listed if one["thread_id"] in threads]
    assert len(ours) == len({tuple(one.values()) for one in ours}) == 16
    ids = [one["checkpoint_id"] for one in listed]
    assert ids == sorted(ids, reverse=True)
    one_thread: Any = {"configurable": {"thread_id": threads[0]}}
    assert len(list(saver.list(one_thread))) == 8
    assert len(list(saver.list(one_thread, limit=5))) == 5
    assert [one.metadata["step"] for one in saver.list(one_thread, filter={"step": 0})] == [0, 0]
    exactly: Any = {"configurable": {"thread_id": threads[0], "checkpoint_ns": "", "checkpoint_id": "0002"}}
    assert [one.metadata["step"] for one in saver.list(exactly)] == [2]


# ---- graphs


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def _graph(saver: RecollectSaver) -> Any:
    """Asks a human, in the middle."""
    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"said": ["first"]})
    builder.add_node("human", lambda state: {"said": [interrupt("and you?")]})
    builder.add_node("last", lambda state: {"said": ["last"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "human")
    builder.add_edge("human", "last")
    builder.add_edge("last", END)
    return builder.compile(checkpointer=saver)


def test_a_graph_that_waits_for_a_human_goes_on_in_another_process(place: Place, thread: str) -> None:
    """Another saver knows where the first one stopped."""
    config: Any = {"configurable": {"thread_id": thread}}
    with RecollectSaver(place.url) as saver:
        stopped = _graph(saver).invoke({"said": ["hello"]}, config)
        assert stopped["__interrupt__"][0].value == "and you?"
    with RecollectSaver(place.url) as saver:
        graph = _graph(saver)
        assert graph.get_state(config).next == ("human",)
        assert graph.invoke(Command(resume="me"), config)["said"] == ["hello", "first", "me", "last"]
        assert [step.metadata["step"] for step in graph.get_state_history(config)] == [3, 2, 1, 0, -1]


async def test_a_graph_with_await_and_without_share_a_thread(saver: RecollectSaver, thread: str) -> None:
    config: Any = {"configurable": {"thread_id": thread}}
    graph = _graph(saver)
    await graph.ainvoke({"said": ["hello"]}, config)
    ended = await asyncio.to_thread(graph.invoke, Command(resume="me"), config)
    assert ended["said"] == ["hello", "first", "me", "last"]
    steps = [step.values async for step in graph.aget_state_history(config)]
    assert steps[0] == ended


def test_half_of_a_character_is_refused_and_not_turned_into_a_question_mark(
    saver: RecollectSaver, thread: str
) -> None:
    class Said(TypedDict):
        said: list[Any]

    builder = StateGraph(Said)
    builder.add_node("node", lambda state: {})
    builder.add_edge(START, "node")
    config: Any = {"configurable": {"thread_id": thread}}
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(Refused, match="half of a character"):
        graph.invoke({"said": [HumanMessage("cut off?"), HumanMessage("here: \ud83d")]}, config)
    whole = {"said": [HumanMessage("cut off? \N{GRINNING FACE}")]}
    assert graph.invoke(whole, {"configurable": {"thread_id": f"{thread} whole"}}) == whole


class Turned:
    """A cipher whose output has other bytes than its input."""

    def encrypt(self, plain: bytes) -> tuple[str, bytes]:
        return "turned", bytes(byte ^ 0x80 for byte in plain)

    def decrypt(self, name: str, hidden: bytes) -> bytes:
        return bytes(byte ^ 0x80 for byte in hidden)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        Send("node", {"text": "\ud83d"}),
        Interrupt("\ud83d"),
        deque(["\ud83d"]),
        HumanMessage("", of_its_own="\ud83d"),
        {"a": ("b", {"c": "\ud83d"})},
    ],
    ids=["send", "interrupt", "deque", "extra field", "plain"],
)
def test_half_of_a_character_is_found_wherever_it_is(
    tmp_path: Path, thread: str, value: Any, encrypted: bool
) -> None:
    serde = EncryptedSerializer(Turned()) if encrypted else None
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db", serde=serde) as saver:
        config = saver.put(config, empty_checkpoint(), {}, {})
        with pytest.raises(Refused, match=r"a write to channel 'c': .* half of a character"):
            saver.put_writes(config, [("c", value)], "task")
        with pytest.raises(Refused, match=r"metadata: .* half of a character"):
            saver.put(config, empty_checkpoint(), cast("Any", {"about": "\ud83d"}), {})


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_is_pickled_is_kept_as_it_is(tmp_path: Path, thread: str, encrypted: bool) -> None:
    """Half of a character, and what goes round in a circle."""
    pickling = JsonPlusSerializer(pickle_fallback=True)
    serde = EncryptedSerializer(Turned(), pickling) if encrypted else pickling
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    value: list[Any] = ["?", "\ud83d"]
    value.append(value)
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db", serde=serde) as saver:
        config = saver.put(config, empty_checkpoint(), {}, {})
        saver.put_writes(config, [("c", value)], "task")
        [(_, _, kept)] = cast(Any, saver.get_tuple(config)).pending_writes
    assert kept[:2] == ["?", "\ud83d"]
    assert kept[2] is kept


# ---- whole threads


def test_numbers_name_threads_too(saver: RecollectSaver) -> None:
    number: Any = uuid.uuid4().int >> 64
    for one in (number, number + 1):
        config: Any = {"configurable": {"thread_id": one, "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {}, {})
        saver.put(config, empty_checkpoint(), {}, {})
    saver.prune([number])
    assert len(list(saver.list({"configurable": {"thread_id": number}}))) == 1
    saver.copy_thread(number, number + 1)
    assert len(list(saver.list({"configurable": {"thread_id": number + 1}}))) == 3
    saver.delete_thread(number)
    assert list(saver.list({"configurable": {"thread_id": f"{number}"}})) == []


def test_runs_may_be_named_by_their_uuid(saver: RecollectSaver, thread: str) -> None:
    run: Any = uuid.uuid4()
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {"run_id": run}, {})
    saver.delete_for_runs([run])
    assert saver.get_tuple(config) is None


def test_a_copy_goes_beside_what_the_target_has(saver: RecollectSaver, thread: str) -> None:
    source: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    target: Any = {"configurable": {"thread_id": f"{thread} target", "checkpoint_ns": ""}}
    for config, step in ((source, "1"), (target, "2")):
        checkpoint = {
            **empty_checkpoint(),
            "id": step,
            "channel_values": {"c": step},
            "channel_versions": {"c": step},
        }
        saved = saver.put(config, cast("Any", checkpoint), {}, {"c": step})
        saver.put_writes(saved, [("c", step)], "task")
    for _ in range(2):  # it may be repeated
        saver.copy_thread(thread, f"{thread} target")
        there = [(one.checkpoint["channel_values"], one.pending_writes) for one in saver.list(target)]
        assert there == [({"c": step}, [("task", "c", step)]) for step in ("2", "1")]
    assert [one.checkpoint["id"] for one in saver.list(source)] == ["1"]


@pytest.mark.parametrize("put_later", [False, True])
def test_nothing_is_left_of_writes_that_came_before_their_checkpoint(
    saver: RecollectSaver, thread: str, put_later: bool
) -> None:
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": "2"}}
    latest: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}

    def put(step: str) -> Any:
        return saver.put(latest, {**empty_checkpoint(), "id": step}, {}, {})

    put("1")
    saver.put_writes(config, [("c", "said")], "task")
    if put_later:
        put("2")
        found = saver.get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "c", "said")]
    saver.copy_thread(thread, f"{thread} copy")
    for name in (thread, f"{thread} copy"):
        saver.delete_thread(name)
    if "redis" in type(saver._shelf).__module__:
        shelf: Any = saver._shelf
        left = saver._loop.wait(shelf._reading(shelf._redis.keys(f"*{key(thread).hex()}*")))
        assert left == []
    put("2")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == []


# ---- prune


def test_pruning_keeps_what_delta_channels_are_made_from(saver: RecollectSaver, thread: str) -> None:
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for step in range(6):
        checkpoint: Any = {**empty_checkpoint(), "id": f"{step:04}"}
        checkpoint["channel_versions"] = {"log": f"{step}", "other": f"{step}"}
        # The third is a snapshot; the others only say that there are deltas.
        checkpoint["channel_values"] = {"other": step, **({"log": ["snapshot"]} if step == 2 else {})}
        metadata: Any = {"step": step, "counters_since_delta_snapshot": {"log": [1, 1]}}
        config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
        saver.put_writes(config, [("log", f"write {step}")], "task")
    before = saver.get_delta_channel_history(config=config, channels=["log"])
    assert before["log"]["seed"] == ["snapshot"]
    saver.prune([thread])
    kept = [one.checkpoint["id"] for one in saver.list({"configurable": {"thread_id": thread}})]
    assert kept == ["0005", "0004", "0003", "0002"]
    assert saver.get_delta_channel_history(config=config, channels=["log"]) == before
    latest: Any = saver.get_tuple({"configurable": {"thread_id": thread}})
    assert latest.checkpoint["channel_values"] == {"other": 5}


# ---- when things go wrong


@pytest.mark.parametrize("error", [OutcomeUnknown("the connection broke"), None])
def test_a_put_whose_answer_is_lost_is_done_again(
    saver: RecollectSaver, thread: str, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    monkeypatch.setattr(saver, "_near_shelf", None)
    put, calls = saver._shelf.put, 0

    async def losing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        await put(*given)
        if calls == 1 and error is not None:
            raise error

    monkeypatch.setattr(saver._shelf, "put", losing)
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {}, {})
    assert calls == (1 if error is None else 2)
    assert len(list(saver.list(config))) == 1


def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    saver: RecollectSaver, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    monkeypatch.setattr(saver, "_near_shelf", None)
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    with monkeypatch.context() as lossy:
        for name in ("put", "put_writes"):
            lossy.setattr(saver._shelf, name, _without_answer(getattr(saver._shelf, name)))
        with pytest.raises(OutcomeUnknown, match="put the same again"):
            saver.put(config, checkpoint, {}, {})
        with pytest.raises(OutcomeUnknown, match="put the same again"):
            saver.put_writes(_at(config, checkpoint), [("said", "hello")], "task")
    saver.put(config, checkpoint, {}, {})
    saver.put_writes(_at(config, checkpoint), [("said", "hello")], "task")
    [only] = saver.list(config)
    assert only.pending_writes == [("task", "said", "hello")]
    with monkeypatch.context() as lossy:
        lossy.setattr(saver._shelf, "delete_thread", _without_answer(saver._shelf.delete_thread))
        with pytest.raises(OutcomeUnknown, match="call it again"):
            saver.delete_thread(thread)
    assert saver.get_tuple(config) is None


def _at(config: Any, checkpoint: Any) -> Any:
    return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}


def _without_answer(change: Any) -> Any:
    async def lossy(*given: Any) -> None:
        await change(*given)
        raise OutcomeUnknown("the connection broke")

    return lossy


def test_who_finds_the_near_way_taken_goes_the_other(tmp_path: Any) -> None:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        near: Any = saver._shelf
        turn = near._turns.begin()  # another thread is at it
        first = saver.put(config, empty_checkpoint(), {}, {})
        saver.put_writes(first, [("said", "hello")], "task")
        found = saver.get_tuple(config)
        turn.over = True
        assert found is not None
        assert found.pending_writes == [("task", "said", "hello")]
        with closing(sqlite3.connect(tmp_path / "memory.db")) as other:
            other.execute("BEGIN IMMEDIATE")  # another process has the lock
            assert not near.put_writes_here(
                shelf.ThreadPlace(b"t", b""), first["configurable"]["checkpoint_id"].encode(), []
            )
            other.execute("ROLLBACK")
        saver.put_writes(first, [("said", "again")], "another")
        found = saver.get_tuple(config)
        assert found is not None
        assert len(found.pending_writes or []) == 2


def test_a_changed_byte_is_told_and_not_loaded(tmp_path: Any) -> None:
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        checkpoint: Any = {
            **empty_checkpoint(),
            "channel_values": {"a": "broken"},
            "channel_versions": {"a": 1},
        }
        saver.put(config, checkpoint, {}, {"a": 1})
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
            [(value,)] = file.execute("SELECT inline FROM langgraph_checkpoints").fetchall()
            file.execute(
                "UPDATE langgraph_checkpoints SET inline = ?", (value.replace(b"broken", b"Broken"),)
            )
        with pytest.raises(Unreadable, match="channel 'a'"):
            saver.get_tuple(config)


def test_a_closed_saver_says_so(place: Place, thread: str) -> None:
    saver = RecollectSaver(place.url)
    saver.close()
    saver.close()
    with pytest.raises(StoreClosed):
        saver.get_tuple({"configurable": {"thread_id": thread}})


def test_what_cannot_be_opened_is_refused() -> None:
    with pytest.raises(CannotOpen, match="mongodb"):
        RecollectSaver("mongodb://localhost/x")
    with pytest.raises(Refused, match="ttl"):
        RecollectSaver("sqlite:///x.db", ttl=timedelta(days=1))


def test_a_fork_is_refused(saver: RecollectSaver, thread: str) -> None:
    """It would wait for a loop that does not run there."""
    saver.get_tuple({"configurable": {"thread_id": thread}})
    child = os.fork()
    if child == 0:
        refused = False
        try:
            saver.get_tuple({"configurable": {"thread_id": thread}})
        except Refused:
            refused = True
        finally:
            os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_at_once_lose_nothing(saver: RecollectSaver, thread: str) -> None:
    def put(number: int) -> None:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        checkpoint: Any = {**empty_checkpoint(), "id": f"{number:04}"}
        saver.put_writes(saver.put(config, checkpoint, {"step": number}, {}), [("a", number)], "task")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(40)))
    listed = list(saver.list({"configurable": {"thread_id": thread}}))
    assert [one.pending_writes for one in listed] == [[("task", "a", number)] for number in range(39, -1, -1)]
