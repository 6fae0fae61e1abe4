"""Our way with messages writes the bytes and reads the values of LangGraph's serializer, whatever the messages hold."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from recollect.adapters.langgraph import RecollectSaver
from recollect.adapters.langgraph.serializing import KINDS, MessageSerializer
from recollect.adapters.langgraph.shelf_sql import SCHEMA


@dataclass
class Usage:
    tokens: int


class OwnMessage(HumanMessage):
    """A user's class: never taken for its parent."""

    mood: str = "calm"


CALL = {"name": "look", "args": {"at": [1, 2.5, None]}, "id": "c1", "type": "tool_call"}
LISTS: dict[str, list[Any]] = {
    "plain": [HumanMessage("hello"), AIMessage("hi"), SystemMessage("be short")],
    "the same one twice": [one := HumanMessage("again", id="1"), one],
    "tool calls": [
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("found", tool_call_id="c1", artifact={"a": (1, 2)}),
    ],
    "odd contents": [
        HumanMessage([{"type": "image", "base64": "AA=="}, "text"]),
        HumanMessage(""),
        AIMessage("\0é🙂?"),
    ],
    "fields of others": [HumanMessage("x", additional_kwargs={"at": Path("/a"), "in": {1, 2}}, mood="good")],
    "chunks": [messages.AIMessageChunk("a", tool_call_chunks=[]), messages.HumanMessageChunk("b")],
    "others between": [
        HumanMessage("a"),
        Document("d", metadata={"n": 1}),
        None,
        b"raw",
        (1, "two"),
        OwnMessage("o"),
    ],
    "nested": [[HumanMessage("in a list")], {"m": HumanMessage("in a mapping")}],
    "none": [],
    "usage with a key of its own": [
        AIMessage("a", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "mine": 4})
    ],
    "objects in its fields": [
        HumanMessage(
            "a", additional_kwargs={"document": Document("d"), "at": datetime(2026, 1, 2, tzinfo=UTC)}
        ),
        ToolMessage("b", tool_call_id="c1", artifact=Usage(5)),
        AIMessage("c", response_metadata={"usage": Usage(6), "many": (1, {2: "two"})}),
    ],
    "half of a character": [HumanMessage("cut \ud83d")],
}


@pytest.mark.parametrize("name", LISTS)
def test_bytes_and_values_are_those_of_langgraphs_serializer(name: str) -> None:
    theirs, ours = JsonPlusSerializer(), MessageSerializer()
    written = theirs.dumps_typed(LISTS[name])
    assert ours.dumps_typed(LISTS[name]) == written
    read, expected = ours.loads_typed(written), theirs.loads_typed(written)
    assert read == expected
    assert _types(read) == _types(expected)
    for state in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        assert [getattr(one, state, None) for one in read] == [getattr(one, state, None) for one in expected]


def _types(values: list[Any]) -> list[type]:
    return [type(value) for value in values]


@pytest.mark.parametrize(
    "value", [None, b"raw", bytearray(b"more"), 5, {"m": HumanMessage("x")}, HumanMessage("alone")]
)
def test_what_is_no_list_goes_the_same_way(value: Any) -> None:
    theirs, ours = JsonPlusSerializer(), MessageSerializer()
    assert ours.dumps_typed(value) == theirs.dumps_typed(value)
    assert ours.loads_typed(theirs.dumps_typed(value)) == value


class Opaque:
    """Nothing that msgpack can write."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value", [[HumanMessage("x", additional_kwargs={"o": Opaque()})], [HumanMessage("x"), Opaque()]]
)
def test_what_only_pickle_can_write_is_pickled_whole_or_refused(value: Any) -> None:
    ours = MessageSerializer(pickle_fallback=True)
    assert ours.dumps_typed(value) == JsonPlusSerializer(pickle_fallback=True).dumps_typed(value)
    assert ours.loads_typed(ours.dumps_typed(value)) == value
    with pytest.raises(TypeError):
        MessageSerializer().dumps_typed(value)


def test_strict_mode_holds_back_what_it_held_back() -> None:
    """Its own classes come back; a user's only as data, until the graph allows it."""
    strict = MessageSerializer(allowed_msgpack_modules=None)
    kinds = [kind for kind in KINDS.values() if "Tool" not in kind.__name__]
    known = [kind(content="x") for kind in kinds]
    known += [kind(content="x", tool_call_id="1") for kind in KINDS.values() if kind not in kinds]
    assert strict.loads_typed(strict.dumps_typed(known)) == known
    written = strict.dumps_typed([OwnMessage("secret")])
    assert isinstance(strict.loads_typed(written)[0], dict)
    allowing = strict.with_msgpack_allowlist([OwnMessage])
    assert isinstance(allowing, MessageSerializer)
    assert allowing.loads_typed(written) == [OwnMessage("secret")]


def test_checkpoints_of_a_file_made_with_numbered_rows_are_read_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA.replace(" WITHOUT ROWID", ""))
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for text in ("one", "two"):
        with RecollectSaver(f"sqlite:///{path}") as saver:
            version = saver.get_next_version(None, None)
            checkpoint = {
                **empty_checkpoint(),
                "channel_versions": {"m": version},
                "channel_values": {"m": text},
            }
            config = saver.put(config, checkpoint, {}, {"m": version})  # type: ignore[arg-type, typeddict-item]
    with RecollectSaver(f"sqlite:///{path}") as saver:
        found = [
            one.checkpoint["channel_values"]["m"] for one in saver.list({"configurable": {"thread_id": "t"}})
        ]
    assert found == ["two", "one"]
