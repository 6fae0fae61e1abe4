"""A turn id stands for its messages: the same ones are a retry, others are refused, none are dropped in silence."""

import asyncio
from datetime import timedelta

import pytest

from recollect import Message, Receipt, Refused, Store, TurnReused
from recollect.sync import open_store as open_sync
from tests.contract.conftest import Place
from tests.contract.reading import texts

SAID = [
    Message("user", "I am Xiao Li", metadata={"lang": "zh", "place": {"x": 1, "y": 2}}),
    Message("assistant", [{"type": "text", "text": "hello \ud800"}], extra={"mood": "good"}),
]

OTHERS: dict[str, list[Message]] = {
    "text": [Message("user", "I am Lao Wang", metadata=SAID[0].metadata), SAID[1]],
    "role": [Message("system", "I am Xiao Li", metadata=SAID[0].metadata), SAID[1]],
    "metadata": [Message("user", "I am Xiao Li"), SAID[1]],
    "blocks": [SAID[0], Message("assistant", [{"type": "text", "text": "hello"}], extra={"mood": "good"})],
    "extra": [SAID[0], Message("assistant", [{"type": "text", "text": "hello \ud800"}])],
    "order": SAID[::-1],
    "fewer": SAID[:1],
    "more": [*SAID, Message("user", "and more")],
}


def again(messages: list[Message]) -> list[Message]:
    """As a retry makes them: other ids and times, and mappings with their keys in another order."""
    return [
        Message(
            message.role,
            message.content,
            timestamp=1.5,
            metadata=dict(reversed(message.metadata.items())),
            extra=message.extra,
            schema=message.schema + 1,
        )
        for message in messages
    ]


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_other_messages_under_a_known_turn_id_are_refused(
    store: Store, session: str, other: list[Message]
) -> None:
    first = await store.append(session, SAID, turn="t")
    with pytest.raises(TurnReused, match=r"'t' .* other messages; nothing was written"):
        await store.append(session, other, turn="t")
    assert issubclass(TurnReused, Refused)
    assert [item.message for item in await store.history(session)] == SAID
    assert await store.append(session, again(SAID), turn="t") == first
    assert (await store.append(session, other, turn="u")).first == 3


async def test_a_retry_may_have_other_ids_and_times(store: Store, session: str) -> None:
    first = await store.append(session, SAID, turn="t")
    for _ in range(3):
        assert await store.append(session, again(SAID), turn="t") == first
    assert len(await store.history(session)) == 2


async def test_of_concurrent_turns_with_one_id_the_first_counts(store: Store, session: str) -> None:
    """In one batch or in several: each gets the receipt of what is stored, or is refused."""
    outcomes = await asyncio.gather(
        *(store.append(session, [Message("user", f"text {n % 5}")], turn="t") for n in range(40)),
        store.append(session, [Message("user", "no turn")]),
        store.append(f"{session}-other", [Message("user", "text 3")], turn="t"),
        return_exceptions=True,
    )
    mine, (plain, other) = outcomes[:40], outcomes[40:]
    assert isinstance(plain, Receipt)
    assert isinstance(other, Receipt)
    kept = [text for text in await texts(store, session) if text != "no turn"]
    assert len(kept) == 1
    for n, outcome in enumerate(mine):
        assert isinstance(outcome, Receipt if kept == [f"text {n % 5}"] else TurnReused), outcome
    assert len({outcome for outcome in mine if isinstance(outcome, Receipt)}) == 1


async def test_stores_beside_each_other_agree(place: Place, session: str) -> None:
    async with place.open() as one, place.open() as other:
        outcomes = await asyncio.gather(
            *(
                store.append(session, [Message("user", text)], turn=f"t{n}")
                for n in range(20)
                for store, text in ((one, "mine"), (other, "yours"))
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 20
        assert sum(isinstance(outcome, TurnReused) for outcome in outcomes) == 20
        assert len(await one.history(session)) == 20


async def test_a_refused_turn_is_refused_whatever_it_expects(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a")], turn="t", expect=0)
    for expect in (0, 1, 7):
        with pytest.raises(TurnReused):
            await store.append(session, [Message("user", "b")], turn="t", expect=expect)
    assert await texts(store, session) == ["a"]


async def test_what_was_forgotten_is_still_known(store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a")], turn="t")
    await store.forget(session)
    with pytest.raises(TurnReused):
        await store.append(session, [Message("user", "b")], turn="t")
    assert await store.history(session) == []


async def test_an_id_that_is_no_longer_remembered_is_free_again(place: Place, session: str) -> None:
    async with place.open(turns_kept=2) as store:
        await store.append(session, [Message("user", "a")], turn="t")
        for n in range(40):
            await store.append(session, [Message("user", str(n))], turn=f"t{n}")
        await store.append(session, [Message("user", "b")], turn="t")
        with pytest.raises(TurnReused):
            await store.append(session, [Message("user", "a")], turn="t")
        assert (await texts(store, session))[-1] == "b"


async def test_fingerprints_live_as_long_as_turn_ids(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(hours=1), refresh="read") as store:
        await store.append(session, [Message("user", "a")], turn="t")
        await store.history(session)
        with pytest.raises(TurnReused):
            await store.append(session, [Message("user", "b")], turn="t")
    async with place.open() as store:
        await store.append(session, [Message("user", "c")])  # lives for ever from now on
        with pytest.raises(TurnReused):
            await store.append(session, [Message("user", "b")], turn="t")


async def test_a_refused_turn_does_not_prolong_the_session(place: Place, session: str) -> None:
    async with place.open(ttl=timedelta(seconds=2)) as store:
        await store.append(session, [Message("user", "a")], turn="t")
        deadline = asyncio.get_running_loop().time() + 20
        while await store.history(session):
            assert asyncio.get_running_loop().time() < deadline, "refused turns keep the session alive"
            with pytest.raises(TurnReused):
                await store.append(session, [Message("user", "b")], turn="t")
            await asyncio.sleep(0.02)


def test_without_async(place: Place, session: str) -> None:
    with open_sync(place.url) as store:
        first = store.append(session, [Message("user", "a")], turn="t")
        with pytest.raises(TurnReused):
            store.append(session, [Message("user", "b")], turn="t")
        assert store.append(session, [Message("user", "a")], turn="t") == first
        assert [item.sequence for item in store.history(session)] == [1]


async def test_a_large_turn_has_a_fingerprint_too(store: Store, session: str) -> None:
    large = [Message("user", f"{n} " + "x" * 1000) for n in range(1500)]
    first = await store.append(session, large, turn="t")
    assert await store.append(session, again(large), turn="t") == first
    with pytest.raises(TurnReused):
        await store.append(session, [*large[:-1], Message("user", "another end")], turn="t")
    assert len(await store.history(session)) == 1500
