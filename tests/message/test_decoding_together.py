"""Records that are decoded together are what each of them is alone, whatever is among them."""

import json
from itertools import chain
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import Damaged, Message
from recollect.checksum import CHECKSUM_BYTES, all_intact, checksum
from recollect.message import DECODED_TOGETHER_LEAST, decode, decode_all, decode_joined, encode
from recollect.tombstone import tombstone

GOLDEN = Path(__file__).parent.parent / "golden"

GOOD = [encode(Message("user", f"message {number}", timestamp=1.5, id=f"m{number}")) for number in range(8)]
MANY = DECODED_TOGETHER_LEAST + 2


def sealed(body: bytes) -> bytes:
    return body + checksum(body)


def flipped(record: bytes, bit: int) -> bytes:
    raw = bytearray(record)
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    return bytes(raw)


BODY = GOOD[0].rstrip()
ODD = [
    *(json.loads(path.read_text())["record"].encode() for path in sorted(GOLDEN.glob("*.json"))),
    tombstone(7),
    b"",
    b" " * 24,
    b" " * CHECKSUM_BYTES,
    BODY,
    BODY + GOOD[1][-24:],
    BODY + GOOD[1][-CHECKSUM_BYTES:],
    GOOD[0] + b" ",
    sealed(b"no JSON"),
    sealed(BODY + b"," + BODY),
    sealed(BODY[:20]),
    sealed(b'{"v":3,"role":"user","content":"no id","timestamp":1,"metadata":{}}'),
    sealed(b'{"v":2,"id":"a","role":"user","content":"x","timestamp":1,"metadata":{},"extra:":1}'),
    sealed(b'{"v":2,"id":"a","role":"user","content":"x","timestamp":1e999,"metadata":{}}'),
    sealed(b'{"v":2,"id":"a","role":"user","content":"x","timestamp":1,"metadata":{},"extra":{"a":1}}'),
    sealed(b"[" * 5_000),
    None,
    7,
    1.5,
    GOOD[0].decode(),
]
"""Of other releases and tools, damaged, with a checksum and yet no record of ours, or not even bytes."""

good = st.lists(st.sampled_from(GOOD), max_size=2 * MANY)
odd = st.builds(flipped, st.sampled_from(GOOD), st.integers(0, 9_999)) | st.sampled_from(ODD)
mixtures = st.builds(lambda *parts: list(chain(*parts)), good, st.lists(odd, max_size=2), good)


@given(mixtures)
@settings(max_examples=200, deadline=None)
def test_any_mixture_is_decoded_as_each_record_alone(raws: list[bytes]) -> None:
    assert decode_all(raws) == [decode(raw) for raw in raws]


def test_one_odd_record_among_good_ones_changes_none_of_them() -> None:
    for odd in ODD:
        raws = [*GOOD, odd, *GOOD]
        assert decode_all(raws) == [decode(raw) for raw in raws]


def test_each_flipped_bit_is_seen_among_good_records() -> None:
    for bit in range(len(GOOD[3]) * 8):
        changed = flipped(GOOD[3], bit)
        *before, found, after = decode_all([*GOOD[:3], changed, GOOD[4]])
        assert isinstance(found, Damaged), (bit, changed)
        assert found.raw == changed
        assert [*before, after] == [decode(raw) for raw in (*GOOD[:3], GOOD[4])]


def test_checksums_in_each_others_place_are_noticed() -> None:
    first, second = (
        GOOD[0][:-CHECKSUM_BYTES] + GOOD[1][-CHECKSUM_BYTES:],
        GOOD[1][:-CHECKSUM_BYTES] + GOOD[0][-CHECKSUM_BYTES:],
    )
    assert all_intact(b"".join(GOOD))
    assert not all_intact(b"".join([first, second, *GOOD[2:]]))
    assert not all_intact(b"".join([GOOD[0][:-1], b" " + GOOD[1], *GOOD[2:]]))


def test_records_that_are_not_as_many_as_there_were_are_not_taken_together() -> None:
    assert decode_joined(b"".join(GOOD), len(GOOD)) == [decode(raw) for raw in GOOD]
    assert decode_joined(b"".join(GOOD), len(GOOD) + 1) is None
    assert decode_joined(b"".join(GOOD), len(GOOD) - 1) is None
