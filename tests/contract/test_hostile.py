"""Every id and every content either round-trips or is refused before anything is written."""

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import Message, Refused, Store
from recollect.appending import SESSION_BYTES_MAX
from tests.contract.reading import texts

HOSTILE_IDS = [
    " ",
    "a",
    "A",
    "a ",
    "a:b",
    "a:b:c",
    "a%",
    "a%3A",
    "a_",
    "a*",
    "a?",
    "a[b]",
    "{a}",
    "a}",
    "{",
    "{}",
    "a\x00b",
    "a\x00",
    "\x00",
    "a\nb",
    "a'; DROP TABLE recollect_messages; --",
    'a"b',
    "a\\b",
    "a/b",
    "../a",
    "é",
    "e\u0301",
    "小明",
    "😀",
    "\ud800",
    "\udfff\ud800",
    "\u202e",
    "a" * 20_000,
    "a" * 19_999 + "b",
    "小" * 20_000,
]


async def test_hostile_ids_never_see_each_other(store: Store) -> None:
    run = uuid.uuid4().hex
    around = [f"{run}{name}" for name in HOSTILE_IDS] + [f"{name}{run}" for name in HOSTILE_IDS]
    ids = list(dict.fromkeys(HOSTILE_IDS + around))
    for place, name in enumerate(ids):
        await store.forget(name)
        await store.append(name, [Message("user", f"{run} {place}")], turn=run)
    for place, name in enumerate(ids):
        assert await texts(store, name) == [f"{run} {place}"], ascii(name[:40])
    listed = [name async for name in store.sessions()]
    assert set(ids) <= set(listed)
    assert len(listed) == len(set(listed))
    await store.forget(ids[3])
    for place, name in enumerate(ids):
        assert await texts(store, name) == ([] if place == 3 else [f"{run} {place}"]), ascii(name[:40])


_part = st.sampled_from(["a", "b", ":", "%", "*", "{", "}", "\x00", " ", "_", "\ud800", "3A", "é"])
_id = st.lists(_part, max_size=5).map("".join).filter(bool)


@given(one=_id, other=_id)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_any_two_ids_are_two_sessions(store: Store, one: str, other: str) -> None:
    if one == other:
        return
    for name in (one, other):
        await store.forget(name)
    await store.append(one, [Message("user", "one")])
    assert await store.history(other) == []
    await store.append(other, [Message("user", "other")])
    await store.forget(one)
    assert await texts(store, other) == ["other"]


async def test_ids_that_are_too_long_or_no_text_are_refused(store: Store) -> None:
    for bad in ("x" * (SESSION_BYTES_MAX + 1), None, 7, b"bytes"):
        with pytest.raises(Refused):
            await store.append(bad, [Message("user", "x")])  # type: ignore[arg-type]
        with pytest.raises(Refused):
            await store.history(bad)  # type: ignore[arg-type]


HOSTILE_CONTENTS: list[str | list[object]] = [
    "",
    "\x00",
    "a\x00b",
    "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "\ud800",
    "ok\udfff",
    "😀👩‍👩‍👧‍👦",
    "\ufeff\ufffe\uffff",
    "小明" * 1000,
    "x" * 5_000_000,
    [],
    [{"type": "image", "data": "x" * 100_000}, {"deep": [[[[[{"k": None}]]]]]}],
    [{"huge": 2**200, "negative": -(2**100), "float": 1.5e300, "tiny": 5e-324}],
    [{"\ud800": "\x00", "": ""}],
]


@pytest.mark.parametrize("content", HOSTILE_CONTENTS, ids=lambda content: ascii(content)[:24])
async def test_hostile_content_comes_back_as_it_was(
    store: Store, session: str, content: str | list[object]
) -> None:
    message = Message("user", content, metadata={"said": content})
    await store.append(session, [message], turn="t")
    assert [item.message for item in await store.history(session)] == [message]


REFUSED: dict[str, Message] = {
    "nan in content": Message("user", [float("nan")]),
    "infinity in metadata": Message("user", "x", metadata={"a": float("inf")}),
    "nan as timestamp": Message("user", "x", timestamp=float("nan")),
    "bytes": Message("user", "x", metadata={"raw": b"bytes"}),
    "tuple": Message("user", "x", metadata={"pair": (1, 2)}),
    "key": Message("user", "x", metadata={1: "key"}),  # type: ignore[dict-item]
    "no content": Message("user", None),  # type: ignore[arg-type]
    "role": Message(7, "x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED)
async def test_what_would_come_back_different_is_refused_and_its_turn_with_it(
    store: Store, session: str, bad: Message
) -> None:
    with pytest.raises(Refused):
        await store.append(session, [Message("user", "good"), bad])
    assert await store.history(session) == []


async def test_unknown_roles_and_fields_of_a_newer_release_survive_a_round_trip(
    store: Store, session: str
) -> None:
    newer = Message("critic", "hm", extra={"mood": {"grumpy": 0.7}, "parts": [1]}, schema=9)
    await store.append(session, [newer])
    (item,) = await store.history(session)
    assert item.message == newer
    assert isinstance(item.message, Message)
    await store.append(session, [item.message])
    assert (await store.history(session))[1].message == newer
