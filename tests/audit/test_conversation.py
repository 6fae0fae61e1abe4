"""Conversations of each framework's form: whole ones are not accused, and torn ones are."""

from types import SimpleNamespace
from typing import Any

import pytest

from recollect.audit.conversation import judged

NOW = 1_800_000_000.0
QUESTION, GOODBYE = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}

FORMS: dict[str, tuple[Any, Any]] = {
    "agents": (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ),
    "chat completions": (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ),
    "langchain": (
        SimpleNamespace(type="ai", content="", tool_calls=[{"id": "c", "name": "f"}], id=None),
        SimpleNamespace(type="tool", content="x", tool_call_id="c", id=None),
    ),
    "llamaindex": (
        SimpleNamespace(role="assistant", additional_kwargs={"tool_calls": [{"id": "c"}]}),
        SimpleNamespace(role="tool", additional_kwargs={"tool_call_id": "c"}),
    ),
    "anthropic": (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    ),
    "strands": (
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c"}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c"}}]},
    ),
    "ours": (
        {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {}}]},
        {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "c", "content": "x"}]},
    ),
}


def names(*items: Any, window: int | None = None) -> list[str]:
    return [finding.name for finding in judged("s", items, NOW, window=window)]


@pytest.mark.parametrize("form", FORMS)
def test_calls_and_answers(form: str) -> None:
    call, answer = FORMS[form]
    assert names(QUESTION, call, answer, GOODBYE) == []
    assert names(QUESTION, call, answer) == []
    assert names(QUESTION, call) == ["open-call"]
    assert names(QUESTION, call, GOODBYE) == ["half-turn"]
    assert names(QUESTION, answer, GOODBYE) == ["half-turn"]
    assert names(QUESTION, answer, call, GOODBYE) == ["half-turn"]
    assert names(QUESTION, call, answer, answer, GOODBYE) == ["duplicate"]
    assert names(QUESTION, call, call, answer, GOODBYE) == ["duplicate"]


def test_a_call_that_slid_out_of_a_window_is_not_missed() -> None:
    _, answer = FORMS["agents"]
    assert names(answer, GOODBYE, window=2) == []
    assert names(answer, GOODBYE, window=3) == ["half-turn"]


def test_calls_that_nobody_answers_are_not_missed() -> None:
    hosted = {"type": "web_search_call", "id": "ws", "status": "completed"}
    shell = {"type": "local_shell_call", "call_id": "sh"}
    invalid = SimpleNamespace(type="ai", content="", invalid_tool_calls=[{"id": "c"}])
    told = {"role": "tool", "tool_call_id": "c", "content": "not JSON"}
    assert names(QUESTION, hosted, shell, GOODBYE) == []
    assert names(QUESTION, invalid, told, GOODBYE) == []


@pytest.mark.parametrize("forms", [("agents", "agents"), ("anthropic", "anthropic")])
def test_one_of_two_parallel_calls_is_still_open(forms: tuple[str, str]) -> None:
    call, answer = FORMS[forms[0]]
    other = {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"}
    assert names(QUESTION, call, other, answer) == ["open-call"]
    assert names(QUESTION, call, other, answer, GOODBYE) == ["half-turn"]


def test_the_same_id_with_another_content_is_a_newer_version() -> None:
    first, second = (
        {"id": "m", "role": "assistant", "content": text} for text in ("so far", "so far so good")
    )
    assert names(first, second) == []
    assert names(first, first) == ["duplicate"]
    reference = {"type": "item_reference", "id": "m"}
    assert names(first, reference, reference) == []


@pytest.mark.parametrize(
    "times",
    [
        (1_700_000_100, 1_700_000_000),
        (1_700_000_100_000, 1_700_000_000_000),
        (1_700_000_100_000_000_000, 1_700_000_000_000_000_000),
        ("2026-01-01T10:00:10+02:00", "2026-01-01T10:00:00+02:00"),
        ("2026-01-01 10:00:10", "2026-01-01 10:00:00"),
    ],
)
def test_times_that_run_backwards_are_a_note(times: tuple[Any, Any]) -> None:
    later, earlier = ({"role": "user", "content": "x", "created_at": at} for at in times)
    assert names(earlier, later) == []
    assert names(later, earlier) == ["order"]


def test_the_future_is_a_note_and_no_time_is_none() -> None:
    assert names({"role": "user", "content": "x", "timestamp": NOW + 100_000}) == ["clock"]
    for odd in (True, "soon", 3, None, float("nan"), 1e300, -5):
        assert names({"role": "user", "content": "x", "timestamp": odd}) == []


def test_what_is_left_of_nothing() -> None:
    assert names(None, {}, b"", []) == ["unreadable"] * 4
    assert names("", "text", b"text", {"content": ""}, 7) == []
