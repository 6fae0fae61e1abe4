"""A test message tells its number, and whether it came back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.verify.target.marked_text import mark, recognise, role_of


@given(st.integers(0, 10**9), st.text())
def test_a_marked_text_is_recognised_as_it_is(number: int, body: str) -> None:
    found = recognise(mark(number, body), role_of(number), {"n": number})
    assert (found.number, found.intact) == (number, True)


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (mark(17, "the invoice")[:-1], "assistant"),
        (mark(17, "the invoice") + "!", "assistant"),
        (" " + mark(17, "the invoice"), "assistant"),
        (mark(17, "the invoice"), "user"),
        (mark(17, "the invoice").replace("invoice", "invoices"), "assistant"),
    ],
)
def test_a_changed_text_or_role_is_noticed(text: str, role: str) -> None:
    found = recognise(text, role)
    assert (found.number, found.intact) == (17, False)


@pytest.mark.parametrize(
    ("text", "role", "n", "says"),
    [
        (mark(17, "x" * 5_000)[:1_000], "assistant", 17, "it came back with 1,000 characters, as '#17."),
        (mark(17, "the invoice")[:-1], "assistant", 17, "the invoic'"),
        (mark(17, "x" * 5_000), "user", 17, "role 'assistant' came back as 'user'"),
        (mark(17, "the invoice"), "assistant", 18, "metadata 'n': 17 came back as 18"),
    ],
)
def test_what_changed_is_said(text: str, role: str, n: int, says: str) -> None:
    assert says in recognise(text, role, {"n": n}).excerpt


def test_names_of_roles_in_other_tools_are_the_same_role() -> None:
    assert recognise(mark(16, "x"), "human").intact
    assert recognise(mark(17, "x"), "ai").intact


def test_other_texts_are_nobody_s() -> None:
    assert recognise("hello").number is None
    assert recognise("").number is None
