"""A mistake in using a store is one clear sentence, the same on every store."""

import asyncio
import itertools
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from recollect import (
    CannotOpen,
    CredentialsRefused,
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    Refused,
    Store,
    StoreClosed,
    open_store,
)
from recollect import sync as recollect_sync
from tests.contract.conftest import Place

HELLO = [Message("user", "hello")]

Call = Callable[[Store, str], Awaitable[Any]]


async def names(store: Store) -> list[str]:
    return [name async for name in store.sessions()]


CALLS: dict[str, Call] = {
    "append": lambda store, session: store.append(session, HELLO),
    "append a turn": lambda store, session: store.append(session, HELLO, turn="t"),
    "history": lambda store, session: store.history(session),
    "history of the last": lambda store, session: store.history(session, last=1),
    "forget": lambda store, session: store.forget(session),
    "erase": lambda store, session: store.forget(session, erase=True),
    "state": lambda store, session: store.state(session),
    "position": lambda store, session: store.position(session),
    "retract": lambda store, session: store.retract(session, 1),
    "replace": lambda store, session: store.replace(session, HELLO),
    "fork": lambda store, session: store.fork(session, f"{session}-fork" if session else ""),
    "describe": lambda store, session: store.describe(session),
    "annotate": lambda store, session: store.annotate(session, {"a": 1}),
    "find": lambda store, session: store.find(session, "id"),
    "append many": lambda store, session: store.append_many({session: HELLO}),
    "sweep": lambda store, session: store.sweep(),
    "sessions": lambda store, session: names(store),
}
OF_A_SESSION = [name for name in CALLS if name not in ("sweep", "sessions")]


@pytest.mark.parametrize("call", CALLS)
async def test_a_closed_store_says_so(place: Place, session: str, call: str) -> None:
    async with place.open() as store:
        await store.append(session, HELLO)
    with pytest.raises(StoreClosed) as refusal:
        await CALLS[call](store, session)
    assert str(refusal.value) == "the store is closed; open it again"
    assert isinstance(refusal.value, NotWritten)
    assert isinstance(refusal.value, EngineUnavailable)
    await store.close()  # once more is no mistake


async def test_closing_several_times_at_once_closes_once(place: Place, session: str) -> None:
    for number in range(3):
        store = await open_store(place.url)
        under_way = [asyncio.create_task(store.append(f"{session}-{n}", HELLO)) for n in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(*(store.close() for _ in range(3)))
        answers = await asyncio.gather(*under_way, return_exceptions=True)
        async with place.open() as again:
            kept = [len(await again.history(f"{session}-{n}")) for n in range(20)]
        assert kept == [number + 1] * 20, answers


async def test_those_who_go_on_writing_do_not_keep_a_store_open(place: Place, session: str) -> None:
    store = await open_store(place.url)

    async def writes(name: str) -> int:
        for number in itertools.count():
            try:
                await store.append(name, HELLO)
            except StoreClosed:
                return number
        raise AssertionError

    names = [f"{session}-{n}" for n in range(4)]
    writers = [asyncio.create_task(writes(name)) for name in names]
    await asyncio.sleep(0.01)
    await asyncio.wait_for(store.close(), 30)
    written = await asyncio.gather(*writers)
    async with place.open() as again:
        assert [len(await again.history(name)) for name in names] == written


@pytest.mark.parametrize("call", CALLS)
async def test_another_event_loop_is_refused(place: Place, session: str, call: str) -> None:
    async with place.open() as store:
        await store.append(session, HELLO)

        async def elsewhere() -> None:
            await CALLS[call](store, session)

        with pytest.raises(Refused) as refusal:
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert str(refusal.value) == (
            "a store belongs to the event loop that opened it: open it in this one, or use recollect.sync"
        )
        assert len(await store.history(session)) == 1, "its own goes on"


async def test_closing_in_another_event_loop_is_refused(place: Place, session: str) -> None:
    async with place.open() as store:
        under_way = asyncio.gather(*(store.append(session, HELLO) for _ in range(3)))
        await asyncio.sleep(0)

        async def elsewhere() -> None:
            await asyncio.wait_for(store.close(), 30)

        with pytest.raises(Refused) as refusal:
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert str(refusal.value) == (
            "a store belongs to the event loop that opened it: close it there, before that loop ends"
        )
        await under_way
        assert len(await store.history(session)) == 3, "it is still open"


@pytest.mark.parametrize("call", OF_A_SESSION)
async def test_an_empty_session_id_is_refused(store: Store, call: str) -> None:
    with pytest.raises(Refused) as refusal:
        await CALLS[call](store, "")
    assert str(refusal.value) == "session: an id of text, such as 'user-42'; not ''"


@pytest.mark.parametrize("name", ["append", "history", "forget", "close", "sessions"])
def test_a_forgotten_await_is_named(place: Place, name: str) -> None:
    with pytest.raises(AttributeError) as refusal:
        getattr(open_store(place.url), name)
    assert str(refusal.value) == (
        f"open_store() was not awaited, so it has no {name} yet: write `store = await open_store(url)`, or "
        "`async with open_store(url) as store`"
    )


def test_a_forgotten_async_is_named(place: Place) -> None:
    opening: Any = open_store(place.url)
    with pytest.raises(TypeError) as refusal, opening:
        pass
    assert str(refusal.value) == (
        "open_store() needs `async with`; without async, use `with recollect.sync.open_store(url) as store`"
    )


async def test_a_store_without_async_says_so_in_async_with(tmp_path: Path) -> None:
    opened: Any = recollect_sync.open_store(f"sqlite:///{tmp_path}/memory.db")
    with pytest.raises(TypeError) as refusal:
        async with opened:
            pass
    assert str(refusal.value) == (
        "recollect.sync.open_store() needs `with`; with async, use `async with recollect.open_store(url) as store`"
    )
    with pytest.raises(StoreClosed):
        opened.history("s")


@pytest.mark.parametrize("opener", [open_store, recollect_sync.open_store])
def test_a_number_as_time_to_live_is_refused(place: Place, opener: Any) -> None:
    with pytest.raises(Refused) as refusal:
        opener(place.url, ttl=3600)
    assert str(refusal.value) == "ttl: a timedelta, such as timedelta(days=7), or None; not 3600"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("timeout_s", "5", "a number of seconds, not '5'"),
        ("timeout_s", None, "a number of seconds, not None"),
        ("replicas", True, "a whole number, not True"),
        ("turns_kept", 1.5, "a whole number, not 1.5"),
        ("pool_size", "8", "a whole number, not '8'"),
        ("witness", 5, "the path of a file, or None; not 5"),
        ("read_url", 5, "the address of a read replica, or None; not 5"),
        ("migrate", "no", "True or False, not 'no'"),
    ],
)
def test_an_option_of_another_kind_is_refused(place: Place, name: str, value: object, wanted: str) -> None:
    openers: list[Any] = [open_store, recollect_sync.open_store]
    for opener in openers:
        with pytest.raises(Refused) as refusal:
            opener(place.url, **{name: value})
        assert str(refusal.value) == f"{name}: {wanted}"


@pytest.mark.parametrize("password", ["wrong", None])
async def test_a_wrong_password_is_one_sentence(place: Place, password: str | None) -> None:
    if place.name == "sqlite":
        pytest.skip("a file has no password")
    endpoint = place.engine.endpoint
    if place.name == "redis" and password is None:
        pytest.skip("without a password, this engine lets everybody read and store")
    parts = urlsplit(endpoint.url)
    login = f"{endpoint.user}:{password}" if password else f"{endpoint.user}"
    url = parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()
    with pytest.raises(CredentialsRefused) as refusal:
        await open_store(url)
    assert "refused the credentials: check the user and the password in the address (" in str(refusal.value)
    assert isinstance(refusal.value, CannotOpen)
    assert not isinstance(refusal.value, EngineUnavailable)
    assert "wrong" not in str(refusal.value).replace("WRONGPASS", "")


def test_a_closed_store_without_async_says_the_same(place: Place) -> None:
    store = recollect_sync.open_store(place.url)
    store.close()
    with pytest.raises(StoreClosed, match="the store is closed; open it again"):
        store.history("s")


@pytest.mark.parametrize(
    "error",
    [StoreClosed("memory"), CredentialsRefused("PostgreSQL", "why"), OutcomeUnknown("lost", "ask again")],
    ids=repr,
)
def test_these_errors_travel_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
