"""A channel's value is written once, and found wherever it is: in its checkpoint's row, in another's, in its own."""

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

import asyncpg
import msgspec
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from redis import Redis

from recollect import Unreadable
from recollect.adapters.langgraph import RecollectSaver, shelf_layout
from recollect.adapters.langgraph.saver import COUNTERS
from recollect.adapters.langgraph.shelf import ThreadPlace, packed, reference
from recollect.adapters.langgraph.shelf_layout import INLINE_MAX, SMALL_MAX
from tests.contract.conftest import Place

STATE = {"tiny": 1, "short": "s" * 10 * SMALL_MAX, "large": "l" * 2 * INLINE_MAX}


@pytest.fixture
def saver(place: Place) -> Iterator[RecollectSaver]:
    with RecollectSaver(place.url) as opened:
        yield opened


@pytest.fixture
def thread() -> Any:
    """A thread that no other test uses: the engines are shared."""
    return {"configurable": {"thread_id": f"thread-{uuid.uuid4()}", "checkpoint_ns": ""}}


def _first(saver: RecollectSaver, thread: Any) -> Any:
    """A checkpoint with a value of every size."""
    versions = {name: saver.get_next_version(None, None) for name in STATE}
    checkpoint = {**empty_checkpoint(), "channel_values": STATE, "channel_versions": versions}
    return saver.put(thread, checkpoint, {"run_id": "first"}, versions)


def _next(saver: RecollectSaver, config: Any, *, values: bool = True) -> Any:
    """One in which only another channel has changed. Without values: as if LangGraph gave only what is new."""
    found = saver.get_tuple(config)
    assert found is not None
    return _child(saver, found.config, found.checkpoint, values=values)


def _child(saver: RecollectSaver, parent: Any, checkpoint: Any, *, values: bool = True) -> Any:
    new = {"step": saver.get_next_version(None, None)}
    following: Any = {
        **empty_checkpoint(),
        "channel_values": {**(checkpoint["channel_values"] if values else {}), "step": "next"},
        "channel_versions": {**checkpoint["channel_versions"], **new},
    }
    return saver.put(parent, following, {"run_id": "next"}, new)


def _values(saver: RecollectSaver, config: Any) -> Any:
    found = saver.get_tuple(config)
    assert found is not None
    [listed] = saver.list(found.config)
    assert listed == found
    return found.checkpoint["channel_values"]


# ---- written once


@pytest.mark.parametrize("size", [10 * SMALL_MAX, INLINE_MAX - 100, 2 * INLINE_MAX])
def test_a_value_that_does_not_change_is_written_once(tmp_path: Path, size: int) -> None:
    class Two(TypedDict):
        still: str
        count: int

    builder = StateGraph(Two)
    builder.add_node("count", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "count" if state["count"] < 20 else END)
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 50}
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"still": "x" * size, "count": 0}, config)
        assert all(
            step.values["still"] == "x" * size for step in graph.get_state_history(config) if step.values
        )
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            kept = [
                *file.execute("SELECT inline FROM langgraph_checkpoints"),
                *file.execute("SELECT value FROM langgraph_values"),
            ]
    held = sum((raw or b"").count(b"x" * size) for (raw,) in kept)
    assert held == 2  # the input, and the channel


@pytest.mark.parametrize("fresh", [False, True])
def test_a_checkpoint_refers_to_what_its_parent_has(place: Place, thread: Any, fresh: bool) -> None:
    with RecollectSaver(place.url) as saver:
        config = _first(saver, thread)
        if not fresh:
            _next(saver, _next(saver, config, values=False), values=False)
            assert _values(saver, thread) == {**STATE, "step": "next"}
            return
        found = saver.get_tuple(config)
        assert found is not None
    with RecollectSaver(place.url) as another:  # one that has not seen the parent
        last = _child(another, config, found.checkpoint, values=False)
        assert _values(another, last) == {**STATE, "step": "next"}


def test_a_value_whose_place_is_unknown_is_written_again(saver: RecollectSaver, thread: Any) -> None:
    first = _first(saver, thread)
    found = saver.get_tuple(first)
    assert found is not None
    saver.delete_thread(thread["configurable"]["thread_id"])
    _child(saver, first, found.checkpoint)
    if "redis" not in type(saver._shelf).__module__:
        assert _values(saver, thread) == {**STATE, "step": "next"}


def test_a_checkpoint_put_again_with_its_own_config_keeps_its_values(
    saver: RecollectSaver, place: Place, thread: Any
) -> None:
    """As by an application that changes the metadata of what it has read."""
    config = _next(saver, _first(saver, thread))
    found = saver.get_tuple(config)
    assert found is not None
    with RecollectSaver(place.url) as fresh:
        for another in (saver, fresh):
            again = another.put(found.config, found.checkpoint, {"run_id": "looked at"}, {})
            assert again == config
            assert _values(another, config) == {**STATE, "step": "next"}
            assert [one.metadata["run_id"] for one in another.list(thread)] == ["looked at", "first"]
    assert _values(saver, _next(saver, config, values=False)) == {**STATE, "step": "next"}


def test_a_checkpoint_put_again_with_its_own_config_keeps_its_parent(
    saver: RecollectSaver, thread: Any
) -> None:
    """What its delta channels are built from is there."""
    first = saver.put(thread, _only(1, {}, {"d": "1"}), {}, {"d": "1"})
    saver.put_writes(first, [("d", "said")], "task")
    second = saver.put(first, _only(2, {}, {"d": "2"}), {COUNTERS: {"d": (1, 1)}}, {"d": "2"})
    for put_again in (saver.put, lambda *given: asyncio.run(saver.aput(*given))):
        found = saver.get_tuple(second)
        assert found is not None
        put_again(found.config, found.checkpoint, found.metadata, {})
        assert saver.get_tuple(second) == found
        assert found.parent_config == first
    saver.prune([thread["configurable"]["thread_id"]])
    history = saver.get_delta_channel_history(config=second, channels=["d"])
    assert history == {"d": {"writes": [("task", "d", "said")]}}


def test_no_value_is_not_written_over_one_that_another_checkpoint_has(
    saver: RecollectSaver, thread: Any
) -> None:
    """As of a delta channel, which only some checkpoints have a value of. Each of the two has a sister that is put
    whole: the one refers to what its parent does not have, the parent of the other is gone."""
    first = saver.put(thread, _only(1, {"d": "value"}, {"d": "1"}), {"run_id": "first"}, {"d": "1"})
    second = saver.put(first, _only(2, {}, {"d": "1"}), {}, {})
    saver.put(first, _only(3, {}, {"d": "1", "never": "1"}), {}, {})
    assert _values(saver, first) == _values(saver, second) == {"d": "value"}
    saver.delete_for_runs(["first"])
    saver.put(first, _only(4, {}, {"d": "1"}), {}, {})
    assert _values(saver, second) == {"d": "value"}


def _only(number: int, values: Any, versions: Any) -> Any:
    return {**empty_checkpoint(), "id": f"{number}", "channel_values": values, "channel_versions": versions}


# ---- removed


def test_a_value_outlives_the_checkpoint_that_first_had_it(saver: RecollectSaver, thread: Any) -> None:
    config = _first(saver, thread)
    for _ in range(3):
        config = _next(saver, config, values=False)
        saver.prune([thread["configurable"]["thread_id"]])
        assert len(list(saver.list(thread))) == 1
        assert _values(saver, thread) == {**STATE, "step": "next"}


def test_a_value_outlives_the_run_that_wrote_it(saver: RecollectSaver, thread: Any) -> None:
    config = _next(saver, _first(saver, thread), values=False)
    found = saver.get_tuple(config)
    assert found is not None
    saver.delete_for_runs(["first"])
    last = _child(saver, config, found.checkpoint, values=False)  # what it knows of the parent is from before
    assert _values(saver, last) == {**STATE, "step": "next"}


@pytest.mark.parametrize("how", ["runs", "thread"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_goes_on_after_its_checkpoint_was_removed_keeps_its_values(
    saver: RecollectSaver, place: Place, thread: Any, how: str, elsewhere: bool
) -> None:
    config = _next(saver, _first(saver, thread))
    found = saver.get_tuple(config)
    assert found is not None
    with RecollectSaver(place.url) as other:
        remover = other if elsewhere else saver
        if how == "runs":
            remover.delete_for_runs(["first", "next"])
        else:
            remover.delete_thread(thread["configurable"]["thread_id"])
        last = _child(saver, config, found.checkpoint)
        assert _values(other, last) == {**STATE, "step": "next"}
        assert _values(other, _child(saver, last, found.checkpoint)) == {**STATE, "step": "next"}


def test_nothing_is_left_of_values_that_nobody_refers_to(tmp_path: Path, thread: Any) -> None:
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        _next(saver, _first(saver, thread))
        saver.prune([thread["configurable"]["thread_id"]])
        last = {**empty_checkpoint(), "channel_versions": {}}
        saver.put(thread, last, {}, {})
        saver.prune([thread["configurable"]["thread_id"]])
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            [(values,)] = file.execute("SELECT count(*) FROM langgraph_values")
    assert values == 0


def test_a_copy_has_its_own_values(saver: RecollectSaver, thread: Any) -> None:
    _next(saver, _first(saver, thread), values=False)
    name = thread["configurable"]["thread_id"]
    saver.copy_thread(name, f"{name} copy")
    saver.delete_thread(name)
    copy: Any = {"configurable": {"thread_id": f"{name} copy", "checkpoint_ns": ""}}
    assert _values(saver, copy) == {**STATE, "step": "next"}


# ---- remembered


def test_only_so_many_places_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_layout, "PLACES_MAX", 3)
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        threads: list[Any] = [
            {"configurable": {"thread_id": f"{number}", "checkpoint_ns": ""}} for number in range(6)
        ]
        firsts = [_first(saver, one) for one in threads]
        known: Any = saver._shelf
        assert len(known._homes._latest) == 3
        for first in firsts:
            assert _values(saver, _next(saver, first, values=False)) == {**STATE, "step": "next"}


# ---- files and databases of the first edition

OLD_SQLITE = """
CREATE TABLE langgraph_checkpoints (
    thread BLOB NOT NULL, namespace BLOB NOT NULL, id BLOB NOT NULL,
    parent BLOB, run BLOB, refs BLOB NOT NULL, checkpoint BLOB NOT NULL, metadata BLOB NOT NULL,
    PRIMARY KEY (thread, namespace, id)
) WITHOUT ROWID;
CREATE TABLE langgraph_values (
    thread BLOB NOT NULL, namespace BLOB NOT NULL, ref BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (thread, namespace, ref)
) WITHOUT ROWID"""
OLD_POSTGRES = (
    OLD_SQLITE.replace("refs BLOB", "refs bytea[]").replace("BLOB", "bytea").replace(" WITHOUT ROWID", "")
)


def _old_rows() -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    dumps = JsonPlusSerializer().dumps_typed
    versions = dict.fromkeys(STATE, "1.0")
    rest = {key: value for key, value in empty_checkpoint().items() if key != "channel_values"}
    refs = [reference(name, version) for name, version in versions.items()]
    checkpoint = packed(*dumps({**rest, "id": "0001", "channel_versions": versions}))
    values = [
        (b"t", b"", ref, packed(*dumps(value))) for ref, value in zip(refs, STATE.values(), strict=True)
    ]
    return (b"t", b"", b"0001", None, None, refs, checkpoint, packed(*dumps({"step": 1}))), values


async def _old_database(url: str) -> str:
    name = f"old_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    base, _, options = url.partition("?")
    there = f"{base.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    connection = await asyncpg.connect(there)
    await connection.execute(OLD_POSTGRES)
    row, values = _old_rows()
    await connection.execute(
        "INSERT INTO langgraph_checkpoints VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row
    )
    await connection.executemany("INSERT INTO langgraph_values VALUES ($1, $2, $3, $4)", values)
    await connection.close()
    return there


def _old_file(path: Path) -> str:
    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(OLD_SQLITE)
        row, values = _old_rows()
        packed_refs = (*row[:5], msgspec.msgpack.encode(row[5]), *row[6:])
        file.execute("INSERT INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)", packed_refs)
        file.executemany("INSERT INTO langgraph_values VALUES (?, ?, ?, ?)", values)
    return f"sqlite:///{path}"


def test_what_the_first_edition_wrote_is_read_and_continued(place: Place, tmp_path: Path) -> None:
    if place.name == "redis":
        pytest.skip("there all editions are the same")
    url = _old_file(tmp_path / "old.db") if place.name == "sqlite" else asyncio.run(_old_database(place.url))
    thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for prune in (False, True):
        with RecollectSaver(url) as saver:
            first: Any = {"configurable": {**thread["configurable"], "checkpoint_id": "0001"}}
            assert _values(saver, first) == STATE
            _next(saver, thread, values=False)
            if prune:
                saver.prune(["t"])
            assert _values(saver, thread) == {**STATE, "step": "next"}


# ---- damaged


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("inline = CAST(X'C1' || inline AS BLOB)", "values of a checkpoint"),
        ("refs = CAST(X'C1' || refs AS BLOB)", "references of a checkpoint"),
        ("homes = X'91C400', refs = X'92C40161C40162'", "refers to 2 values and has 1 places"),
    ],
)
def test_a_damaged_row_is_told(tmp_path: Path, thread: Any, damage: str, says: str) -> None:
    with RecollectSaver(f"sqlite:///{tmp_path}/memory.db") as saver:
        _first(saver, thread)
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
            file.execute(f"UPDATE langgraph_checkpoints SET {damage}")
        with pytest.raises(Unreadable, match=says):
            saver.get_tuple(thread)


TOLD = r"not there any more|checksum|do not have the same"


def _damage(saver: RecollectSaver, place: Place, thread: Any, what: str) -> None:
    """Behind the saver's back: an SQL statement, or which of Redis's keys of the thread are removed or changed."""
    name = thread["configurable"]["thread_id"].encode()
    if place.name == "redis":
        shelf: Any = saver._shelf
        keys = {kind: shelf._key(kind, ThreadPlace(name, b"")) for kind in "cilv"}
        client: Any = Redis.from_url(place.url)
        with closing(client) as redis:
            if what == "parent":
                for checkpoint, links in redis.hgetall(keys["l"]).items():
                    redis.hset(keys["l"], checkpoint, b"|" + links.split(b"|", 1)[1])
            else:
                redis.delete(keys[what])
    elif place.name == "sqlite":
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as file, file:
            file.execute(what, {"1": name})
    else:
        asyncio.run(_execute(place.url, what, name))


async def _execute(url: str, statement: str, *values: bytes) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement, *values)
    await connection.close()


@pytest.mark.parametrize(
    ("sql", "redis"),
    [
        ("UPDATE langgraph_checkpoints SET inline = NULL WHERE thread = $1 AND parent IS NULL", "v"),
        ("UPDATE langgraph_checkpoints SET inline = NULL WHERE thread = $1 AND parent IS NOT NULL", "c"),
        ("DELETE FROM langgraph_checkpoints WHERE thread = $1 AND parent IS NULL", "i"),
        ("DELETE FROM langgraph_values WHERE thread = $1", "l"),
        ("UPDATE langgraph_checkpoints SET parent = NULL WHERE thread = $1 AND parent IS NOT NULL", "parent"),
    ],
    ids=["home emptied", "own row emptied", "home gone", "large value gone", "parent"],
)
def test_a_checkpoint_without_its_values_is_told(
    saver: RecollectSaver, place: Place, thread: Any, sql: str, redis: str
) -> None:
    _next(saver, _first(saver, thread), values=False)
    _damage(saver, place, thread, redis if place.name == "redis" else sql)
    with RecollectSaver(place.url) as another:
        for reader in (saver, another):
            with pytest.raises(Unreadable, match=TOLD):
                reader.get_tuple(thread)
            with pytest.raises(Unreadable, match=TOLD):
                list(reader.list(thread))
            with pytest.raises(Unreadable, match=TOLD):
                asyncio.run(reader.aget_tuple(thread))


@pytest.mark.parametrize("begun", [False, True])
def test_a_checkpoint_that_names_no_new_values_has_those_it_was_given(
    saver: RecollectSaver, thread: Any, begun: bool
) -> None:
    """Whether it is the first, or its parent has nothing of the kind."""
    checkpoint: Any = {
        **empty_checkpoint(),
        "channel_values": STATE,
        "channel_versions": dict.fromkeys(STATE, "1.0"),
    }
    checkpoint["channel_versions"]["never"] = "1.0"
    config = saver.put(thread, {**empty_checkpoint(), "id": "0"}, {}, {}) if begun else thread
    config = saver.put(config, checkpoint, {}, {})
    assert _values(saver, thread) == STATE
    assert _values(saver, _next(saver, config, values=False)) == {**STATE, "step": "next"}
