"""Finding a target, recognising its shape, and saying what is wrong with it."""

import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from recollect import Conflict, Damaged, Message
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.matrix.target_probe import OUR_ABILITIES
from recollect.verify.target.contents import spoken, text_of
from recollect.verify.target.marked_text import mark
from recollect.verify.target.pipe import Said
from recollect.verify.target.returned import elements, recognised
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import FactoryRaised, Target, resolve
from tests.verify.stores import KEPT

ENDPOINT = Endpoint(
    url="redis://127.0.0.1:1/0",
    engine="redis",
    product="Redis",
    version="7",
    policy="none",
    provider="system",
)


@pytest.fixture(autouse=True)
def _empty() -> None:
    KEPT.clear()


async def opened(name: str) -> Target:
    target = Target(f"tests.verify.stores:{name}", ENDPOINT)
    await target.open()
    return target


SHAPES = ("articles", "strings", "agents", "apart", "apart_of_session")
READS = ("yielding", "in_conversations", "in_objects", "lines")


@pytest.mark.parametrize("name", [*SHAPES, *READS])
async def test_a_store_of_each_shape_is_written_and_read(name: str) -> None:
    target = await opened(name)
    said = [Said(number, mark(number, "hello")) for number in range(12)]
    for one in said:
        await target.append("s1", [one], turn=None, expect=None)
    await target.append("s2", [Said(12, mark(12, "other"))], turn=None, expect=None)
    raw, _ = await target.read("s1", None, None)
    seen = [recognised(item, target.interface) for item in raw]
    assert [one.number for one in seen] == list(range(12)), "also beyond a limit by default"
    assert all(one.intact for one in seen)
    if "last" in target.abilities:
        raw, _ = await target.read("s1", 3, None)
        assert [recognised(item).number for item in raw] == [9, 10, 11]


def _row(*names: str) -> Callable[..., sqlite3.Row]:
    """As `sqlite3` returns it with its own row factory."""

    def row(*values: Any) -> sqlite3.Row:
        database = sqlite3.connect(":memory:")
        database.row_factory = sqlite3.Row
        columns = ", ".join(f"? AS {name}" for name in names)
        found: sqlite3.Row = database.execute(f"SELECT {columns}", values).fetchone()
        return found

    return row


def test_rows_are_messages_too() -> None:
    text, other = mark(3, "hello"), mark(3, "hello").replace("hello", "hullo")
    for good, bad in (
        (("assistant", text), ("assistant", other)),
        ((text, "assistant"), (text, "user")),
        ((7, "user", "assistant", text, "user"), (7, "assistant", "user", text)),
        ([7, "s", "assistant", text, "2026-01-01"], [7, "s", "system", text, "2026-01-01"]),
        (("s", text), ("s", other)),
        (_row("role", "content")("assistant", text), _row("role", "content")("user", text)),
        (_row("id", "body", "at")(1, text, "2026-01-01"), _row("id", "body", "at")(1, other, "2026-01-01")),
        ({"role": "assistant", "text": text}, {"role": "assistant", "text": other}),
        ({"sender": "assistant", "body": text}, {"sender": "user", "body": text}),
        (SimpleNamespace(role="assistant", body=text), SimpleNamespace(role="Assistant", body=text)),
    ):
        assert recognised(good)[:2] == (3, True), good
        assert recognised(bad)[:2] == (3, False), bad


def test_what_is_called_content_once_is_called_so_always() -> None:
    """Otherwise the application would not find it."""
    text = mark(3, "hello")
    same = {"role": "assistant", "text": text}
    assert elements([same, same]).numbers == [3, 3]
    assert elements([{"role": "assistant", "content": text}, same]).numbers == [3, -1]


def test_a_row_keeps_its_other_columns() -> None:
    kept = {
        "speaker": "user",
        "words": text_of(3, "named"),
        "name": "Xiao Li",
        "metadata": spoken(3, "named").fields["metadata"],
    }
    assert recognised(kept)[:2] == (3, True)
    assert recognised({**kept, "name": "xiao li"})[:2] == (3, False)


def test_a_row_without_a_mark_is_told_by_its_role() -> None:
    for row in ((1, "user", "user", "", "2026-01-01"), ("", "user"), _row("role", "content")("user", "")):
        found = recognised(row)
        assert (found.number, found.excerpt, found.role) == (None, "", "user"), row
    assert recognised((1, 2)).number is None
    assert recognised(()).number is None


async def test_a_whole_list_is_written_back_with_what_was_read() -> None:
    target = await opened("whole_list")
    assert "whole-list" in target.abilities
    await target.save("s", [Said(0, mark(0, "a"))], drop=0)
    await target.read("s", None, None)
    await target.save("s", [Said(1, mark(1, "b"))], drop=0)
    await target.read("s", None, None)
    await target.save("s", [Said(2, mark(2, "c"))], drop=1)
    raw, _ = await target.read("s", None, None)
    assert [recognised(item).number for item in raw] == [1, 2]


async def test_our_own_store_is_recognised(tmp_path: object) -> None:
    endpoint = Endpoint(
        url=f"sqlite:///{tmp_path}/m.db",
        engine="sqlite",
        product="",
        version="",
        policy="wal-full",
        provider="",
    )
    target = Target("sqlite", endpoint)
    await target.open()
    assert set(target.abilities) >= OUR_ABILITIES["sqlite"]
    acknowledged = await target.append("s", [Said(0, mark(0, "a"))], turn="t", expect=0)
    assert (acknowledged.sequence, acknowledged.durability) == (1, "fsynced")
    raw, sequence = await target.read("s", None, None)
    assert (recognised(raw[0]).number, sequence) == (0, 1)
    await target.replace("s", [Said(1, mark(1, "b")), Said(2, mark(2, "c"))], turn="u", expect=1)
    await target.read("s", None, None)
    with pytest.raises(Conflict):
        await target.retract("s", [0], turn="v", expect=1)
    await target.retract("s", [0], turn="v", expect=await target.position("s"))
    raw, _ = await target.read("s", None, None)
    assert [recognised(item).number for item in raw] == [2]
    spanning = {"s": [Said(3, mark(3, "d"))], "t": [Said(4, mark(4, "e"))]}
    for _ in range(2):  # once, whatever is sent again under its turn id
        assert (await target.append_many(spanning, turn="w")).durability == "fsynced"
    for session, numbers in (("s", [2, 3]), ("t", [4])):
        raw, _ = await target.read(session, None, None)
        assert [recognised(item).number for item in raw] == numbers
    await target.close()


class Gapped:
    """Says in its place that a message was lost, as our stores do."""

    retracted: tuple[int, ...] = ()

    def append(self, session: str, messages: list[Message]) -> None: ...

    def history(self, session: str) -> list[Stored]:
        kept = [Stored(number, Message("user", mark(number, "said"))) for number in (2, 6, 8)]
        return [kept[0], Stored(3, Damaged(b"", "lost")), *kept[1:]]

    def position(self, session: str) -> int:
        return 8

    def retract(self, session: str, *sequences: int, expect: int | None = None) -> None:
        Gapped.retracted = sequences


async def test_a_place_is_that_of_a_message_also_behind_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a read has no marks of losses; taking back by it once removed the neighbour."""
    monkeypatch.setattr("tests.verify.stores.made_here", lambda endpoint: Gapped(), raising=False)
    target = await opened("made_here")
    raw, _ = await target.read("s", None, None)
    numbers = elements(raw).numbers
    assert numbers == [2, 6, 8]
    await target.retract("s", [numbers.index(2), numbers.index(8)], turn=None, expect=8)
    assert Gapped.retracted == (2, 8)


class Positionless:
    """Takes messages back, and has no position that this could be compared with."""

    def append(self, session: str, messages: list[Message]) -> None: ...

    def history(self, session: str) -> list[Stored]:
        return []

    def retract(self, session: str, *sequences: int, expect: int | None = None) -> None: ...

    def replace(self, session: str, messages: list[Message], expect: int | None = None) -> None: ...


class Uncompared(Positionless):
    """Has a position, and does not look at it when a message is taken back."""

    def position(self, session: str) -> int:
        return 0

    def retract(self, session: str, *sequences: int) -> None: ...  # type: ignore[override]


class Retried(Positionless):
    """A turn id makes a second attempt safe, but not one that is over several sessions."""

    def append(self, session: str, messages: list[Message], turn: str | None = None) -> None: ...

    def append_many(self, turns: dict[str, list[Message]]) -> None: ...


class Paged:
    """Lists pages from the oldest message on; a page has three, unless somebody asks for another length."""

    def __init__(self) -> None:
        self.said = [mark(number, "said") for number in range(10)]

    def add_message(self, session: str, message: str) -> None: ...

    def get_messages(self, session: str, limit: int = 3, offset: int = 0) -> list[str]:
        return self.said[offset : offset + limit]


async def test_the_length_of_a_page_is_no_claim_about_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with pages was once accused of returning the oldest where the newest were wanted."""
    monkeypatch.setattr("tests.verify.stores.made_here", lambda endpoint: Paged(), raising=False)
    target = await opened("made_here")
    assert "last" not in target.abilities
    for last in (None, 5):  # some workloads ask for the end of any store, and judge whatever comes
        raw, _ = await target.read("s", last, None)
        assert elements(raw).numbers == list(range(10))


@pytest.mark.parametrize(("kind", "expected"), [(Positionless, set()), (Uncompared, {"replace"})])
async def test_changes_are_asked_of_stores_that_can_compare(
    kind: type, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.verify.stores.made_here", lambda endpoint: kind(), raising=False)
    target = await opened("made_here")
    assert set(target.abilities) & {"retract", "replace"} == expected


async def test_turns_over_sessions_are_not_asked_for_if_a_retry_would_store_them_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.verify.stores.made_here", lambda endpoint: Retried(), raising=False)
    assert "append_many" not in (await opened("made_here")).abilities


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nonsense", "name a built-in"),
        ("no.such.module:factory", "no module 'no'"),
        ("tests.verify.stores:missing", "has no 'missing'"),
        ("tests.verify.stores:not_callable", "not something to call"),
        ("tests.verify.broken_import:factory", "imports 'not_installed_anywhere'"),
    ],
)
def test_a_target_that_cannot_be_found_says_why(spec: str, says: str) -> None:
    with pytest.raises(BadTarget, match=says):
        resolve(spec)


async def test_a_factory_that_raises_says_what_it_raised() -> None:
    with pytest.raises(FactoryRaised, match="RuntimeError: no database configured"):
        await opened("raises")


async def test_a_store_without_a_known_shape_names_the_shapes_and_what_was_found() -> None:
    with pytest.raises(BadTarget) as error:
        await opened("shapeless")
    for part in ("remember", "append/history", "save/load", "add_items/get_items"):
        assert part in str(error.value)
