"""Appends of several sessions in one call, and the short form of an append: the same as one long call for each."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from recollect import Message, NotWritten, OutcomeUnknown, Receipt, Refused, TurnReused, open_store
from recollect.stores.redis.commit import JOINED_BYTES_MAX
from recollect.stores.redis.script import APPEND
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, address, free_port, hands_on, new_prefix, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def said(text: str) -> list[Message]:
    return [Message("user", text)]


def keys_of(session: str) -> tuple[str, ...]:
    return tuple(f"p:{{{session}}}:{kind}" for kind in "mctf")


# ---- the short form

OPTIONS = ("3", "", "append")


def short(hands: Any, session: str, known: int, *options: str) -> Any:
    return hands.eval(APPEND.source, 4, *keys_of(session), *(options or OPTIONS), 2, known, "record")


def long(hands: Any, session: str, known: int, *options: str) -> Any:
    rest = ("", "", known, "ask", "", "record")
    return hands.eval(APPEND.source, 4, *keys_of(session), *(options or OPTIONS), len(rest), *rest)


Change = Callable[[Any, tuple[str, ...]], object]


def counter(**fields: object) -> Change:
    return lambda hands, keys: hands.hset(keys[1], mapping=fields)


STATES: dict[str, list[Change]] = {
    "as it is": [],
    "nothing there": [lambda hands, keys: hands.delete(*keys)],
    "no counter": [lambda hands, keys: hands.delete(keys[1])],
    "no last": [lambda hands, keys: hands.hdel(keys[1], "last")],
    "no list": [lambda hands, keys: hands.delete(keys[0])],
    "forgotten": [lambda hands, keys: hands.delete(keys[0]), counter(gone="forgotten")],
    "expires": [counter(expires=99999999999999), lambda hands, keys: hands.expire(keys[0], 1000)],
    "expired": [counter(expires=5, hidden=2, metadata="{}"), lambda hands, keys: hands.delete(keys[0])],
    "with a floor": [counter(floor=1, hidden=1, runs=1)],
    "full": [counter(last=549755813887)],
    "nearly full": [counter(last=549755813886)],
    "nine digits": [counter(last=999999999)],
    "ten digits": [counter(last=1000000000)],
    **{
        f"last is {last!r}": [counter(last=last)]
        for last in (
            "0",
            "007",
            "",
            "nan",
            "inf",
            "1e3",
            "-4",
            "+4",
            " 4",
            "4 ",
            "4.5",
            "0x4",
            "9" * 15,
            "9" * 16,
        )
    },
    "a counter of another type": [
        lambda hands, keys: hands.delete(keys[1]),
        lambda hands, keys: hands.set(keys[1], "x"),
    ],
    "messages of another type": [
        lambda hands, keys: hands.delete(keys[0]),
        lambda hands, keys: hands.set(keys[0], "x"),
    ],
}


def outcome(hands: Any, form: Callable[..., Any], session: str, known: int, *options: str) -> Any:
    """The answer, and what is stored then."""
    try:
        answer = form(hands, session, known, *options)
    except ResponseError as error:
        answer = "WRONGTYPE" if "WRONGTYPE" in str(error) else str(error)
    stored: list[Any] = []
    for key in keys_of(session):
        match hands.type(key):
            case b"list":
                stored.append(hands.lrange(key, 0, -1))
            case b"hash":
                fields = hands.hgetall(key)
                stored.append({name: value for name, value in fields.items() if name not in TIMES})
                stored += [(name, len(fields[name])) for name in TIMES if name in fields]
            case b"zset":
                stored.append(hands.zrange(key, 0, -1, withscores=True))
            case other:
                stored.append(other)
        stored.append(hands.ttl(key) > 0)
    return answer, stored


TIMES = (b"updated", b"created", b"expires")


@pytest.mark.parametrize("state", STATES)
def test_the_short_form_does_what_the_long_one_does(engine: Engine, state: str) -> None:
    with hands_on(engine) as hands:
        for options in (OPTIONS, ("3", "100000", "never")):
            for known in (0, 10**12):
                found = []
                for form in (short, long):
                    hands.delete(*keys_of("s"))
                    for _ in range(2):
                        long(hands, "s", 0)
                    for change in STATES[state]:
                        change(hands, keys_of("s"))
                    found.append([outcome(hands, form, "s", known, *options) for _ in range(2)])
                assert found[0] == found[1], (options, known)


def test_the_short_form_says_when(engine: Engine) -> None:
    with hands_on(engine) as hands:
        hands.delete(*keys_of("s"))
        short(hands, "s", 0)
        while hands.time()[1] > 50_000:
            """Until a second has just begun: its milliseconds have fewer digits then."""
        for _ in range(20):
            seconds, micros = hands.time()
            short(hands, "s", 0)
            updated = int(hands.hget(keys_of("s")[1], "updated"))
            assert seconds * 1000 + micros // 1000 <= updated <= seconds * 1000 + micros // 1000 + 60_000
            assert updated >= int(hands.hget(keys_of("s")[1], "created"))


# ---- several in one call


async def test_appends_that_wait_together_are_one_call(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        await store.append("warm", said("x"))
        with hands_on(engine) as hands:
            hands.config_resetstat()
            await asyncio.gather(
                *(store.append(f"s{n}", said(str(n))) for n in range(5)),
                store.append("t", said("x"), turn="t"),
            )
            calls = hands.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert calls == 2, "the first goes alone"
        for number in range(5):
            assert await texts(store, f"s{number}") == [str(number)]


async def test_one_call_is_bounded(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        await store.append("warm", said("x"))
        with hands_on(engine) as hands:
            hands.config_resetstat()
            await asyncio.gather(
                *(store.append(f"s{n}", said("x" * (JOINED_BYTES_MAX // 2 - 1000))) for n in range(5))
            )
            assert hands.info("commandstats")["cmdstat_evalsha"]["calls"] == 3


async def test_what_one_is_refused_leaves_the_others_be(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        for session in ("fine", "taken", "reused", "conflict", "behind", "last"):
            await store.append(session, said("before"), turn="t")
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{staken}}:m")
            hands.set(f"{prefix}:{{staken}}:m", "not ours")
            hands.delete(f"{prefix}:{{sbehind}}:m", f"{prefix}:{{sbehind}}:c")
        found = await asyncio.gather(
            store.append("first", said("alone")),
            store.append("fine", said("after")),
            store.append("taken", said("after")),
            store.append("reused", said("other"), turn="t"),
            store.append("conflict", said("after"), expect=7),
            store.append("behind", said("after")),
            store.append("fine", said("before"), turn="t"),
            store.append("last", said("after"), turn="u"),
            return_exceptions=True,
        )
        assert [
            answer.last if isinstance(answer, Receipt) else type(answer).__name__ for answer in found
        ] == [1, 2, "NotWritten", "TurnReused", "Conflict", 2, 1, 2]
        assert "of this session holds something" in str(found[2])
        assert isinstance(found[3], TurnReused)
        assert await texts(store, "fine") == ["before", "after"]
        assert await texts(store, "last") == ["before", "after"]
        assert await texts(store, "conflict") == ["before"]


async def test_a_full_engine_writes_none_of_them(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        await asyncio.gather(*(store.append(f"s{n}", said("x")) for n in range(4)))
        with hands_on(engine) as hands:
            hands.config_set("maxmemory", "1")
            try:
                found = await asyncio.gather(
                    *(store.append(f"s{n}", said("y")) for n in range(4)), return_exceptions=True
                )
            finally:
                hands.config_set("maxmemory", "0")
        assert [type(answer) for answer in found] == [NotWritten] * 4
        for number in range(4):
            assert await texts(store, f"s{number}") == ["x"]


async def test_rights_that_are_taken_away_stop_all_of_them(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        hands.execute_command("ACL", "SETUSER", prefix, "on", ">secret", "~*", "+@all")
        url = engine.endpoint.socket_url
        assert url is not None
        async with open_store(f"unix://{prefix}:secret@{url.partition('@')[2]}&prefix={prefix}") as store:
            await asyncio.gather(*(store.append(f"s{n}", said("x"), turn="t") for n in range(4)))
            hands.execute_command("ACL", "SETUSER", prefix, "-rpush")
            found = await asyncio.gather(
                *(store.append(f"s{n}", said("y")) for n in range(4)), return_exceptions=True
            )
            assert {type(answer) for answer in found} <= {NotWritten, OutcomeUnknown}
            with pytest.raises(NotWritten, match="may not run RPUSH"):
                await store.append("other", said("y"))


async def test_a_script_that_the_engine_forgot_is_sent_with_all_of_them(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        with hands_on(engine) as hands:
            for turn in range(3):
                hands.script_flush()
                await asyncio.gather(*(store.append(f"s{n}", said(f"{turn}")) for n in range(20)))
        for number in range(20):
            assert await texts(store, f"s{number}") == ["0", "1", "2"]


@pytest.mark.parametrize("told", [True, False])
async def test_sessions_in_different_slots_have_calls_of_their_own(tmp_path: Path, told: bool) -> None:
    """A cluster of one, behind the address of a server, refuses to span slots; nothing is lost or stored twice. If
    nobody may ask what it is, its first refusal tells."""
    config = tmp_path / "cluster.conf"
    config.write_text(f"cluster-enabled yes\ncluster-port {free_port()}\n")
    with started("redis@7", "custom", config) as node, hands_on(node) as hands:
        hands.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        deadline = time.monotonic() + 10
        while b"cluster_state:ok" not in hands.execute_command("CLUSTER", "INFO"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        rights = "+@all" if told else "-info"
        hands.execute_command("ACL", "SETUSER", "app", "on", ">word", "~*", "&*", "+@all", rights)
        async with open_store(f"redis://app:word@{node.endpoint.host}:{node.endpoint.port}") as store:
            for turn in range(3):
                await asyncio.gather(*(store.append(f"s{n}", said(f"{turn}")) for n in range(20)))
            for number in range(20):
                assert await texts(store, f"s{number}") == ["0", "1", "2"]
            refusals = hands.info("errorstats").get("errorstat_CROSSSLOT", {"count": 0})["count"]
            assert refusals == 0 if told else 0 < refusals <= 2, "it is asked once, or not at all"
            with pytest.raises(Refused, match="different slots of a cluster"):
                await store.append_many({"s1": said("together"), "s2": said("together")})
