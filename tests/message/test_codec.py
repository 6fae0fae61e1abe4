"""Whatever is said comes back as it was, or is refused with its place."""

import json
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect import Damaged, Message, Refused
from recollect.checksum import CHECKSUM_BYTES, checksum
from recollect.json_values import DEPTH_MAX
from recollect.message import RECORD_BYTES_MAX, SCHEMA, decode, decode_all, encode
from tests.example_counts import examples

GOLDEN = Path(__file__).parent.parent / "golden"

anything = st.text(st.characters())  # lone surrogates and control characters included
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | anything,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything, inner, max_size=4),
    max_leaves=12,
)
messages = st.builds(
    Message,
    role=anything,
    content=anything | st.lists(json_values, max_size=4),
    timestamp=st.floats(allow_nan=False, allow_infinity=False),
    metadata=st.dictionaries(anything, json_values, max_size=3),
    id=anything,
    extra=st.dictionaries(anything.map(lambda name: f"x{name}"), json_values, max_size=2),
    schema=st.integers(SCHEMA, 9),
)


@given(messages)
@settings(max_examples=examples(400), deadline=None)
@example(Message("", "", timestamp=0.0, id=""))
@example(Message("user", "\x00\ud800😀\x7f", metadata={"\udfff": 2**500}))
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages)
@settings(max_examples=examples(100), deadline=None)
def test_records_are_json_that_any_tool_reads(message: Message) -> None:
    record = json.loads(encode(message))
    assert record["v"] == message.schema
    assert record["content"] == message.content


@given(st.binary(max_size=200))
@settings(max_examples=400, deadline=None)
def test_no_bytes_make_decoding_raise(raw: bytes) -> None:
    found = decode(raw)
    if isinstance(found, Damaged):
        assert found.raw == raw
        assert found.reason
    else:
        assert decode(encode(found)) == found


@given(messages, st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=examples(200), deadline=None)
def test_a_changed_byte_is_damage_with_the_raw_bytes(message: Message, place: int, value: int) -> None:
    record = encode(message)
    raw = bytearray(record)
    raw[place % len(raw)] = value
    changed = bytes(raw)
    for found in (decode(changed), *decode_all([changed])):
        if changed == record:
            assert found == message
        else:
            assert isinstance(found, Damaged)
            assert found.raw == changed


@pytest.mark.parametrize(
    "golden",
    [
        "v2-text",
        "v2-with-tabs-text",
        "v2-with-tabs-blocks",
        "v2-with-tabs-lone-surrogate",
        "v3-with-tabs-from-a-newer-release",
    ],
)
def test_every_flipped_bit_is_damage(golden: str) -> None:
    record = json.loads((GOLDEN / f"{golden}.json").read_text())["record"].encode()
    assert isinstance(decode(record), Message)
    for bit in range(len(record) * 8):
        raw = bytearray(record)
        raw[bit // 8] ^= 1 << bit % 8
        assert isinstance(decode(bytes(raw)), Damaged), (bit, bytes(raw))


@given(messages, st.integers(1, 400))
@settings(max_examples=examples(200), deadline=None)
def test_a_record_that_was_cut_is_damage_or_its_own_text(message: Message, length: int) -> None:
    """Without its checksum it is a record of a release that had none: its JSON still has to be whole."""
    record = encode(message)
    found = decode(record[:-length])
    assert isinstance(found, Damaged) or found == message


def test_a_message_of_an_earlier_version_is_written_as_the_current_one() -> None:
    message = decode(encode(Message("user", "x", schema=1)))
    assert isinstance(message, Message)
    assert message.schema == SCHEMA


def test_five_megabytes_and_nothing() -> None:
    for text in ("", "x" * 5_000_000, "😀" * 1_300_000):
        message = Message("user", text)
        assert decode(encode(message)) == message


def test_nesting_up_to_the_limit_is_kept_and_beyond_it_refused() -> None:
    def nested(depth: int) -> list[object]:
        value: list[object] = []
        for _ in range(depth - 1):
            value = [value]
        return value

    deep = Message("user", nested(DEPTH_MAX))
    assert decode(encode(deep)) == deep
    for depth in (DEPTH_MAX + 1, 100_000):
        with pytest.raises(Refused, match="nested deeper"):
            encode(Message("user", nested(depth)))
    assert isinstance(decode(b"[" * 100_000 + b"]" * 100_000), Damaged)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (Message("user", [{"score": float("nan")}]), r"content\[0\].score"),
        (Message("user", "x", metadata={"a": {"b": float("-inf")}}), "metadata.a.b"),
        (Message("user", "x", metadata={"a": [b"raw"]}), r"metadata.a\[0\]: bytes"),
        (Message("user", "x", metadata={"a": (1,)}), "metadata.a: tuple"),
        (Message("user", "x", metadata={"a": {1: 2}}), "metadata.a: key 1"),
        (Message("user", "x", timestamp=float("inf")), "timestamp"),
        (Message("user", "x", timestamp="now"), "timestamp"),  # type: ignore[arg-type]
        (Message("user", {"a": 1}), "content"),  # type: ignore[arg-type]
        (Message(None, "x"), "role"),  # type: ignore[arg-type]
        (Message("user", "x", extra={"role": "system"}), "extra"),
        (Message("user", "x", metadata=[1]), "metadata"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_come_back_different_is_refused_with_its_place(message: Message, place: str) -> None:
    with pytest.raises(Refused, match=place):
        encode(message)


def test_a_record_beyond_the_limit_is_refused() -> None:
    with pytest.raises(Refused, match="bytes"):
        encode(Message("user", "x" * RECORD_BYTES_MAX))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1,"id":"a","role":"user","content":"x","timestamp":1e999,"metadata":{}}',
        b'{"v":1,"id":"a","role":"user","content":NaN,"timestamp":1,"metadata":{}}',
        b'{"v":1,"id":"a","role":7,"content":"x","timestamp":1,"metadata":{}}',
        b'{"v":1,"id":"a","role":"user","content":{"a":1},"timestamp":1,"metadata":{}}',
        b'{"v":-1,"id":"a","role":"user","content":"x","timestamp":1,"metadata":{}}',
        b'{"v":true,"id":"a","role":"user","content":"x","timestamp":1,"metadata":{}}',
        b'{"role":"user","content":"x","timestamp":"yesterday"}',
        b'{"nothing":"known"}',
        b"",
    ],
    ids=ascii,
)
def test_what_is_no_record_is_damaged(raw: bytes) -> None:
    found = decode(raw)
    assert isinstance(found, Damaged)
    assert found.raw == raw


def test_text_of_blocks() -> None:
    blocks: list[object] = [{"type": "text", "text": "a"}, {"type": "image"}, "b", 7]
    assert Message("user", blocks).text == "a\nb"
    assert Message("user", "plain").text == "plain"


def test_binary_content_is_not_text() -> None:
    image = {"kind": "binary", "data": "AAE=", "media_type": "image/png"}
    assert Message("user", [{"parts": [{"content": ["look", image]}]}]).text == "look"


def test_a_message_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Message("user", "x").content = "y"  # type: ignore[misc]


@given(st.binary(max_size=60))
def test_a_checksum_is_blanks_and_tabs_that_make_the_crc_nothing(body: bytes) -> None:
    """With carriage returns, Redis's replies of many records could not be parsed many strings at a time."""
    made = checksum(body)
    assert len(made) == CHECKSUM_BYTES
    assert set(made) <= set(b" \t")
    assert crc32(body + made) == 0
