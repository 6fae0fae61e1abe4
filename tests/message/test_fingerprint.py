"""Fingerprints lie in people's databases: the same messages give the same one, in every release."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Message
from recollect.fingerprint import FINGERPRINT_BYTES, fingerprint

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "older" / "fingerprints.json").read_text())


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["name"])
def test_the_fingerprint_is_what_it_was(golden: dict[str, Any]) -> None:
    messages = [Message(**fields) for fields in golden["messages"]]
    assert fingerprint(messages).hex() == golden["fingerprint"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.text(st.characters(exclude_categories=()), max_size=5),
        st.text(st.characters(exclude_categories=()), max_size=5) | st.lists(VALUES, max_size=3),
        metadata=st.dictionaries(st.text(), VALUES, max_size=3),
        extra=st.dictionaries(st.text(), VALUES, max_size=2),
    ),
    min_size=1,
    max_size=4,
)


def said(messages: list[Message]) -> str:
    """What counts, as text that also tells 1 from 1.0 and True."""
    counted = [[message.role, message.content, message.metadata, message.extra] for message in messages]
    return json.dumps(counted, sort_keys=True)


@given(MESSAGES, MESSAGES)
def test_equal_messages_and_only_they_have_equal_fingerprints(
    one: list[Message], other: list[Message]
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (said(one) == said(other))
    restamped = [msgspec.structs.replace(message, id="another", timestamp=0.0, schema=9) for message in one]
    assert fingerprint(restamped) == fingerprint(one)
    assert len(fingerprint(one)) == FINGERPRINT_BYTES


@given(MESSAGES)
def test_where_one_message_ends_counts(messages: list[Message]) -> None:
    joined = Message(messages[0].role, [message.content for message in messages])
    if len(messages) > 1:
        assert fingerprint([joined]) != fingerprint(messages)
