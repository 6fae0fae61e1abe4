"""Whatever Python holds: it comes back equal, or is refused with its place, in bounded time and memory."""

import contextlib
import decimal
import enum
import sys
import tracemalloc
from collections import OrderedDict, defaultdict
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect import Message, Refused
from recollect.appending import checked_append
from recollect.json_values import INTEGER_BITS_MAX
from recollect.message import RECORD_BYTES_MAX, SCHEMA, Damaged, decode, decode_all, encode
from tests.example_counts import examples


class Text(str):
    __slots__ = ()


class Role(enum.StrEnum):
    USER = "user"


class OlderRole(str, enum.Enum):  # noqa: UP042 - as many still write it
    USER = "user"


class Odd(str, enum.Enum):  # noqa: UP042
    """Not equal to its own value."""

    def __new__(cls, value: str) -> "Odd":
        made = str.__new__(cls, f"odd-{value}")
        made._value_ = value
        return made

    A = "a"


class Number(int):
    pass


def unfolding(levels: int) -> list[Any]:
    """A few objects that unfold to two to the power of `levels`."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


def cyclic_mapping() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = [{"again": value}]
    return value


def deep_twice() -> list[Any]:
    """Each way to the shared list is short enough but one."""
    shared: list[Any] = []
    for _ in range(150):
        shared = [shared]
    longer = shared
    for _ in range(100):
        longer = [longer]
    return [shared, longer]


BAD: dict[str, tuple[Message, str]] = {
    "numpy float": (Message("user", [numpy.float64(1.5)]), r"content\[0\]: numpy.float64 would not come back"),
    "numpy integer": (Message("user", "x", metadata={"n": numpy.int64(3)}), "metadata.n: numpy.int64"),
    "numpy text": (Message("user", "x", metadata={"n": numpy.str_("x")}), "metadata.n: numpy.str_"),
    "numpy array": (Message("user", "x", metadata={"n": numpy.zeros(3)}), "metadata.n: numpy.ndarray"),
    "numpy timestamp": (Message("user", "x", timestamp=numpy.float64(1.5)), "timestamp: epoch seconds"),
    "subclass as role": (Message(Text("user"), "x"), "role: text, not .*Text"),
    "subclass as id": (Message("user", "x", id=Text("i")), "id: text, not .*Text"),
    "subclass as content": (Message("user", Text("x")), "content: text, not .*Text"),
    "subclass in metadata": (Message("user", "x", metadata={"a": Text("x")}), "metadata.a: .*Text would not"),
    "subclass beside a surrogate": (Message("user", "\ud800", metadata={"a": Text("x")}), "metadata.a: .*Text"),
    "subclass of int": (Message("user", [Number(3)]), r"content\[0\]: .*Number would not"),
    "odd member": (Message("user", [Odd.A]), r"content\[0\]: .*Odd would not"),
    "decimal": (Message("user", [decimal.Decimal("1.5")]), r"content\[0\]: decimal.Decimal"),
    "schema text": (Message("user", "x", schema="abc"), "schema: the version of a record, 1 or above; not 'abc'"),  # type: ignore[arg-type]
    "schema zero": (Message("user", "x", schema=0), "schema: .*not 0"),
    "schema bool": (Message("user", "x", schema=True), "schema: .*not True"),
    "schema float": (Message("user", "x", schema=1.0), "schema: .*not 1.0"),  # type: ignore[arg-type]
    "schema huge": (Message("user", "x", schema=10**5000), "schema: .*a number of 16,610 bits"),
    "timestamp huge": (Message("user", "x", timestamp=10**400), "timestamp: a number of 1,329 bits"),
    "timestamp inexact": (Message("user", "x", timestamp=2**60 + 1), "timestamp: 1152921504606846977 does not fit"),
    "timestamp nan": (Message("user", "x", timestamp=float("nan")), "timestamp: nan is not a time"),
    "timestamp bool": (Message("user", "x", timestamp=True), "timestamp: .*not True"),
    "number huge": (Message("user", [10**5000]), r"content\[0\]: a number of 16,610 bits; at most 2,100"),
    "key": (Message("user", "x", metadata={"a": {decimal.Decimal(1): 2}}), "metadata.a: key of type decimal"),
    "pair in content": (Message("user", "\ud83d\ude00"), "content: two halves of a surrogate pair"),
    "pair in role": (Message("\ud83d\ude00", "x"), "role: two halves"),
    "pair in blocks": (Message("user", [{"text": "a\ud83d\ude00"}]), r"content\[0\].'text': two halves"),
    "pair in a key": (Message("user", "x", metadata={"a": {"\ud83d\ude00": 1}}), "metadata.'a', a key: two"),
    "contains itself": (Message("user", cyclic()), r"content\[0\]: contains itself"),
    "mapping that contains itself": (Message("user", "x", metadata=cyclic_mapping()), "again: contains itself"),
    "unfolds": (Message("user", unfolding(100)), "at least .* bytes; at most 67,108,864"),
    "unfolds in metadata": (Message("user", "x", metadata={"a": unfolding(150)}), "at least .* bytes"),
    "large texts": (Message("user", ["x" * 1_000_000] * 1_000), "at least 1,000,003,002 bytes"),
    "large together": (Message("user", "x" * 40_000_000, metadata={"a": "x" * 40_000_000}), "80,000,0.. bytes or more"),
    "deep on one way": (Message("user", deep_twice()), "nested deeper than 200 levels"),
    "unfolding role": (Message(unfolding(100), "x"), "role: text, not a value of type list"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize(("message", "words"), BAD.values(), ids=BAD)
def test_refused_with_its_place_and_in_little_memory(message: Message, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match=words) as refusal:
            encode(message)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 500


def test_what_is_equal_to_what_comes_back_is_taken() -> None:
    shared = ["said twice"]
    message = Message(
        Role.USER,
        [
            OlderRole.USER,
            {"a": OrderedDict(b=defaultdict(list, c=[1]))},
            shared,
            shared,
            2**INTEGER_BITS_MAX - 1,
        ],
        metadata={Role.USER: True, Text("key"): None, "half": "\ude00\ud83d"},
        timestamp=1_700_000_000,
    )
    assert decode(encode(message)) == message
    full = Message("user", unfolding(20))
    assert decode(encode(full)) == full


def test_a_turn_too_large_is_refused_before_all_of_it_is_encoded() -> None:
    message = Message("user", "x" * (RECORD_BYTES_MAX // 2))
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="in one turn"):
            checked_append("s", [message] * 10_000)
        assert tracemalloc.get_traced_memory()[1] < 8 * RECORD_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "given", [(Message("user", "x") for _ in range(1)), "text", {"a": 1}, 7, None, [None]]
)
def test_what_are_no_messages(given: Any) -> None:
    with pytest.raises(Refused, match="a sequence of Message"):
        checked_append("s", given)


def test_near_the_end_of_the_stack() -> None:
    deep: list[Any] = []
    for _ in range(190):
        deep = [deep]
    message = Message("user", deep)

    def fall(left: int) -> bytes:
        return encode(message) if left == 0 else fall(left - 1)

    used = 0
    frame: Any = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    with pytest.raises(Refused, match="nested too deeply for what is left of the stack"):
        fall(sys.getrecursionlimit() - used - 60)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(
        ["\ud83d\ude00", "\ude00\ud83d", Text("t"), Role.USER, Odd.A, Number(1), 10**700, b"raw"]
    )
    | st.sampled_from(
        [numpy.float64(0.5), numpy.float32(0.5), numpy.int64(1), numpy.bool_(True), decimal.Decimal(1)]
    )
)


@st.composite
def graphs(draw: st.DrawFn) -> list[Any]:
    """Lists and mappings that hold scalars and each other, themselves included."""
    nodes: list[Any] = [
        draw(st.sampled_from([list, dict, OrderedDict]))() for _ in range(draw(st.integers(1, 5)))
    ]
    for node in nodes:
        for item in draw(
            st.lists(st.integers(0, len(nodes) - 1).map(nodes.__getitem__) | scalars, max_size=3)
        ):
            if isinstance(node, list):
                node.append(item)
            else:
                key = draw(st.text(st.characters(), max_size=3) | scalars.filter(_hashes))
                # Older numpy cannot compare its 1 with a Decimal's, of equal hash.
                with contextlib.suppress(TypeError):
                    node[key] = item
    return [nodes[0]]


def _hashes(value: object) -> bool:
    return value == value


def record_or_refusal(message: Message) -> bytes | Refused:
    try:
        return encode(message)
    except Refused as refusal:
        return refusal


@given(graphs(), scalars, scalars, scalars)
@settings(max_examples=examples(500), deadline=None)
@example([cyclic()], "user", 0.0, 1)
def test_anything_comes_back_equal_or_is_refused(
    content: list[Any], role: Any, time: Any, schema: Any
) -> None:
    for message in (
        Message("user", content, timestamp=0.0),
        Message("user", "x", metadata={"a": content}),
        Message(role, "x"),
        Message("user", role),
        Message("user", "x", timestamp=time),
        Message("user", "x", schema=schema),
        Message("user", "x", id=role, extra={"x": role}),
    ):
        record = record_or_refusal(message)
        if isinstance(record, bytes):
            # An earlier version is written as the current one.
            written = msgspec.structs.replace(message, schema=max(message.schema, SCHEMA))
            assert decode(record) == written
        else:
            assert len(str(record)) < 500


@pytest.mark.parametrize(
    ("held", "raw"),
    [(None, b""), (7, b"7"), (1.5, b"1.5"), ("text", b"text"), ('{"v":1}', b'{"v":1}'), ("\udcff", b"\xff")],
)
def test_what_is_not_even_bytes_is_damaged(held: Any, raw: bytes) -> None:
    good = encode(Message("user", "x", id="i", timestamp=0.0))
    one, two, three = decode_all([good, held, good])
    assert isinstance(one, Message)
    assert one == three
    assert isinstance(two, Damaged)
    assert two == decode(held)
    assert two.raw == raw
    assert "the engine holds" in two.reason
