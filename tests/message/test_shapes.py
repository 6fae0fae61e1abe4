"""Dictionaries of other libraries, both ways."""

from typing import Any

import pytest

from recollect import Message, Refused
from recollect.appending import checked_append
from recollect.message import decode, encode

OPENAI: dict[str, dict[str, Any]] = {
    "plain": {"role": "user", "content": "hello"},
    "blocks": {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    "with a name": {"role": "user", "content": "hello", "name": "Li"},
    "tool calls": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        ],
    },
    "tool": {"role": "tool", "tool_call_id": "c1", "content": "42"},
    "message item": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": []}],
    },
    "call item": {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
    "output item": {"type": "function_call_output", "call_id": "c1", "output": "42"},
    "reasoning": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    "unknown fields": {"role": "developer", "content": "x", "phase": None, "later": {"deep": [1, 2.5, None]}},
    "empty": {"role": "user", "content": ""},
    "reference": {"type": "item_reference", "id": "msg_1"},
    "reference without a type": {"id": "msg_1"},
}

LANGCHAIN: dict[str, dict[str, Any]] = {
    "human": {"type": "human", "data": {"content": "hello", "type": "human", "id": None, "name": None}},
    "ai": {
        "type": "ai",
        "data": {
            "content": "",
            "type": "ai",
            "id": "run-1",
            "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c1", "type": "tool_call"}],
            "usage_metadata": {"input_tokens": 1},
        },
    },
    "tool": {"type": "tool", "data": {"content": "42", "type": "tool", "tool_call_id": "c1"}},
    "chat": {"type": "chat", "data": {"content": "x", "type": "chat", "role": "narrator"}},
    "chunk": {"type": "AIMessageChunk", "data": {"content": [{"type": "text", "text": "hello"}]}},
    "dumpd": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "hello", "type": "human"},
    },
}


@pytest.mark.parametrize("item", OPENAI.values(), ids=OPENAI)
def test_openai_comes_back_as_it_was(item: dict[str, Any]) -> None:
    stored = decode(encode(Message.from_openai(item)))
    assert isinstance(stored, Message)
    assert stored.to_openai() == item


@pytest.mark.parametrize("item", LANGCHAIN.values(), ids=LANGCHAIN)
def test_langchain_comes_back_as_it_was(item: dict[str, Any]) -> None:
    stored = decode(encode(Message.from_langchain(item)))
    assert isinstance(stored, Message)
    assert stored.to_langchain() == item


def test_roles_ids_and_texts() -> None:
    made = {name: Message.from_openai(item) for name, item in OPENAI.items()}
    assert [made[name].role for name in ("plain", "call item", "output item", "reasoning")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert made["message item"].id == "msg_1"
    assert made["plain"].id != Message.from_openai(OPENAI["plain"]).id, (
        "equal messages are not the same message"
    )
    assert made["plain"].content == "hello"
    for name in ("plain", "blocks", "with a name", "message item"):
        assert made[name].text == "hello"
    others = {name: Message.from_langchain(item) for name, item in LANGCHAIN.items()}
    assert [other.role for other in others.values()] == [
        "user",
        "assistant",
        "tool",
        "narrator",
        "assistant",
        "user",
    ]
    assert others["ai"].id == "run-1"
    for name in ("human", "chunk", "dumpd"):
        assert others[name].text == "hello"


@pytest.mark.parametrize(
    "native",
    [
        {"role": "assistant", "content": None, "refusal": "hello"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "hello"}]},
        {"type": "function_call_output", "call_id": "c", "output": "hello"},
        {
            "content": {
                "role": "user",
                "parts": [{"function_response": {"name": "f", "response": {"result": "hello"}}}],
            }
        },
        {"content": {"parts": [{"code_execution_result": {"outcome": "OUTCOME_OK", "output": "hello"}}]}},
        {"role": "tool", "contents": [{"type": "function_result", "call_id": "c", "result": "hello"}]},
    ],
)
def test_what_a_tool_answered_and_a_refusal_are_text(native: dict[str, Any]) -> None:
    assert Message("tool", [native]).text == "hello"


def test_text_of_wrapped_items() -> None:
    assert Message("user", [{"role": "user", "content": "hello"}]).text == "hello"
    assert Message("user", [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]).text == "a\nb"
    assert Message("user", [{"type": "image_url", "image_url": {"url": "x"}}, {"text": "c"}]).text == "c"
    assert Message("user", [None, 1, {"content": None}]).text == ""
    endless: list[Any] = []
    for _ in range(100):
        endless = [{"content": endless}]
    assert Message("user", endless).text == ""


def test_from_one_library_to_the_other() -> None:
    calls = Message.from_langchain(LANGCHAIN["ai"]).to_openai()
    assert calls["role"] == "assistant"
    assert calls["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]
    back = Message.from_openai(OPENAI["tool calls"]).to_langchain()
    assert back["type"] == "ai"
    assert back["data"]["tool_calls"] == LANGCHAIN["ai"]["data"]["tool_calls"]
    assert Message.from_langchain(LANGCHAIN["tool"]).to_openai() == OPENAI["tool"]
    assert Message.from_openai(OPENAI["tool"]).to_langchain()["data"]["tool_call_id"] == "c1"
    own = Message("narrator", "x", id="i").to_langchain()
    assert own == {"type": "chat", "data": {"content": "x", "type": "chat", "id": "i", "role": "narrator"}}
    assert Message("user", [{"type": "text", "text": "a"}]).to_openai() == {
        "role": "user",
        "content": [{"type": "text", "text": "a"}],
    }


@pytest.mark.parametrize(
    "wrong", [{}, {"content": "x"}, {"role": 1}, {"lc": 1}, {"data": {}}, {"type": 1, "data": {}}]
)
def test_what_has_no_known_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        checked_append("s", [wrong])


@pytest.mark.parametrize("wrong", [None, "hello", 1, [], Message("user", "hello")])
@pytest.mark.parametrize("read", [Message.from_openai, Message.from_langchain])
def test_what_is_no_dictionary_is_refused(read: Any, wrong: Any) -> None:
    with pytest.raises(Refused):
        read(wrong)


def test_a_retry_with_dictionaries_is_a_retry() -> None:
    """What has no id gets a new one each time, and the fingerprint does not look at it."""
    one, other = (checked_append("s", list(OPENAI.values()), "t") for _ in range(2))
    assert one.fingerprint == other.fingerprint
    assert one.records != other.records
    mixed = checked_append("s", [Message("user", "hello"), OPENAI["plain"]], "t")
    assert len(mixed.records) == 2
