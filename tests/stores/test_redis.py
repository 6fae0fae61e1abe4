"""What only the Redis store has: its keys, its round trips, its pool, its driver without retries."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import SSLConnection
from redis.crc import key_slot

from recollect import (
    Damaged,
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    Refused,
    StoreClosed,
    open_store,
)
from recollect.appending import session_key
from recollect.stores.redis import address as redis_address
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.wire import Replies, Reply, ReplyError, pack
from recollect.verify.engines import Engine, Pausable
from tests.certificates import certified as certified
from tests.certificates import served
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, address, free_port, hands_on, new_prefix, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def say(text: str) -> list[Message]:
    return [Message("user", text)]


# ---- keys


SESSIONS = st.text(alphabet=st.characters(exclude_categories=()), min_size=1, max_size=40)


def _keys(session: str) -> list[bytes]:
    address = parse_address("redis://h/0?prefix=p*")
    return [key.encode() for key in address.session_keys(session_key(session))]


@given(SESSIONS, SESSIONS)
def test_keys_of_a_session_share_a_slot_and_no_other_session_s(one: str, other: str) -> None:
    keys = _keys(one)
    assert len({key_slot(key) for key in keys}) == 1
    assert len(set(keys)) == 4
    assert (set(keys) & set(_keys(other)) != set()) == (one == other)
    for key in keys:
        assert not set(key) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%_.-~:{}")
        assert key.count(b"{") == key.count(b"}") == 1
        assert key.index(b"}") > key.index(b"{") + 1, "an empty tag would not be hashed as one"
        assert parse_address("redis://h/0?prefix=p*").session_key(key) == session_key(one)


async def test_scripts_run_on_a_cluster_node(tmp_path: Path) -> None:
    config = tmp_path / "cluster.conf"
    config.write_text(f"cluster-enabled yes\ncluster-port {free_port()}\n")
    with started("redis@7", "custom", config) as node, hands_on(node) as hands:
        hands.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        deadline = time.monotonic() + 10
        while b"cluster_state:ok" not in hands.execute_command("CLUSTER", "INFO"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        async with open_store(address(node), ttl=timedelta(hours=1), refresh="read") as store:
            for session in ("a", "{a}", "}{", " "):
                await store.append(session, say(session), turn="t")
                assert await texts(store, session) == [session]
                await store.forget(session)
            assert await store.sweep() == 0


async def test_prefixes_are_namespaces(engine: Engine) -> None:
    one = new_prefix()
    other = f"{one[:-1]}*"  # as a pattern it would match the first
    async with open_store(address(engine, one)) as left, open_store(address(engine, other)) as right:
        await left.append("only here", say("x"))
        await left.append("s", say("left"))
        await right.append("s", say("right"))
        assert (await texts(left, "s"), await texts(right, "s")) == (["left"], ["right"])
        assert left.identity != right.identity
        assert {session async for session in left.sessions()} == {"s", "only here"}
        await left.forget("s")
        assert [session async for session in right.sessions()] == ["s"]


async def test_a_retraction_that_was_lost_on_the_disk_is_told(engine: Engine) -> None:
    """As after a flipped bit in the key of the engine's LSET: the message is back, and the counter knows better."""
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", [Message("user", text) for text in "abcd"])
        await store.append("other", [Message("user", text) for text in "abcd"])
        with hands_on(engine) as hands:
            element = hands.lindex(f"{prefix}:{{ss}}:m", 1)
            assert element.startswith(b"2 ")
            await store.retract("s", 2, 4)
            await store.retract("other", 2, 4)
            assert not any(isinstance(item.message, Damaged) for item in await store.history("s"))
            hands.lset(f"{prefix}:{{ss}}:m", 1, element)
        assert [
            str(item.message) for item in await store.history("s") if isinstance(item.message, Damaged)
        ] == [
            "Damaged(raw=b'', reason='a change was lost on the disk: what was retracted may be shown again')"
        ]
        assert [item.sequence for item in await store.history("other")] == [1, 3]


@pytest.mark.parametrize("window", [{}, {"last": 3}, {"after": 1}])
async def test_a_retraction_that_hit_another_session_is_told(engine: Engine, window: dict[str, int]) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", [Message("user", text) for text in "abcd"])
        with hands_on(engine) as hands:
            hands.lset(f"{prefix}:{{ss}}:m", 2, b"3 \x003")
        damaged = [item for item in await store.history("s", **window) if isinstance(item.message, Damaged)]
        assert [item.sequence for item in damaged] == [3]


async def test_listing_and_sweeping_never_use_keys(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        for number in range(5):
            await store.append(f"s{number}", say("x"))
        with hands_on(engine) as hands:
            hands.config_resetstat()
            assert {session async for session in store.sessions()} == {f"s{number}" for number in range(5)}
            await store.sweep()
            used = hands.info("commandstats")
        assert "cmdstat_scan" in used
        assert "cmdstat_keys" not in used


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://h/0?retry_on_timeout=yes", "retry_on_timeout"),
        ("redis://h/0?socket_timeout=3", "socket_timeout"),
        ("redis://h/zero", "/zero"),
        ("redis://h/0?prefix=", "prefix"),
        ("redis://h:port/0", "address"),
    ],
)
async def test_addresses_that_cannot_be_honoured_are_refused(url: str, word: str) -> None:
    with pytest.raises(Refused, match=word):
        await open_store(url)


async def test_a_read_url_is_refused(engine: Engine) -> None:
    with pytest.raises(Refused, match="read_url"):
        await open_store(address(engine), read_url="redis://replica/0")


async def test_tls(tmp_path: Path, certified: tuple[Path, Path]) -> None:
    certificate = certified[1]
    port = free_port()
    config = tmp_path / "tls.conf"
    config.write_text(served(*certified))
    with started("redis@7", "custom", config) as engine, hands_on(engine) as hands:
        # The kit chooses an engine's ports, whatever its configuration says.
        hands.config_set("tls-port", port)
        async with open_store(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}") as store:
            await store.append("s", say("x" * 100_000))
            assert await texts(store, "s") == ["x" * 100_000]
        with pytest.raises(EngineUnavailable, match="certificate"):
            await open_store(f"rediss://127.0.0.1:{port}/0")


def test_connections_with_tls_share_their_certificates(
    monkeypatch: pytest.MonkeyPatch, certified: tuple[Path, Path]
) -> None:
    """To read them takes so long that a store with many connections would hold up its event loop."""
    _, file = certified
    one = parse_address(f"rediss+cluster://a:1,b:2?ssl_ca_certs={file}")

    def context(node: tuple[str, int]) -> ssl.SSLContext:
        connection = one.at(node).connection()
        assert isinstance(connection, SSLConnection)
        return connection.ssl_context.get()

    read = context(("a", 1))
    assert context(("b", 2)) is read
    monkeypatch.setattr(redis_address, "_TLS_LIFE_S", -1.0)
    renewed = context(("a", 1))
    assert renewed is not read, "a certificate is renewed while the store is open"
    file.unlink()
    assert context(("a", 1)) is renewed, "just being replaced"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("ssl_ca_certs=/no/such.pem", "ssl_ca_certs=/no/such.pem: there is no such file"),
        ("ssl_certfile=/proc/version", "the ssl_… options of the address cannot be used: .*PEM"),
        ("ssl_cert_reqs=maybe", "cannot be used: Invalid SSL Certificate Requirements Flag: maybe"),
        ("ssl_cacerts=x", "ssl_cacerts: not an option of TLS; known are ssl_ca_certs, "),
    ],
)
async def test_wrong_options_of_tls_are_told_at_once(options: str, told: str) -> None:
    for place in ("rediss://localhost", "rediss+cluster://a:1", "rediss+sentinel://a:1/memory"):
        with pytest.raises(Refused, match=told):
            await open_store(f"{place}?{options}", timeout_s=1000)


# ---- round trips


async def test_an_append_is_one_call_and_a_limited_read_moves_little(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        await store.append("s", [Message("user", "x" * 1000) for _ in range(1000)])
        await texts(store, "s", last=1)
        with hands_on(engine) as hands:
            hands.config_resetstat()
            for number in range(20):
                await store.append("s", say("y"), turn=str(number))
            assert hands.info("commandstats")["cmdstat_evalsha"]["calls"] == 20
            before = hands.info("stats")["total_net_output_bytes"]
            await texts(store, "s", last=3)
            await texts(store, "s", after=1017)
            between = hands.info("stats")["total_net_output_bytes"] - before
        assert between < 20_000, "two reads of 3 messages each, and an INFO"


async def test_a_flushed_script_cache_is_not_noticed(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        _flush_scripts(engine)
        receipts = await asyncio.gather(*(store.append("s", say(str(n)), turn=str(n)) for n in range(10)))
        assert sorted(receipt.last for receipt in receipts) == list(range(1, 11))
        _flush_scripts(engine)
        assert len(await texts(store, "s")) == 10
        _flush_scripts(engine)
        await store.forget("s")
        assert await texts(store, "s") == []


def _flush_scripts(engine: Engine) -> None:
    with hands_on(engine) as hands:
        hands.script_flush()


async def test_a_turn_larger_than_lua_s_stack(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        large = [Message("user", str(n)) for n in range(10_000)]
        receipt = await store.append("s", large, turn="t")
        assert (receipt.first, receipt.last) == (1, 10_000)
        assert await store.append("s", large, turn="t") == receipt
        assert await texts(store, "s") == [str(n) for n in range(10_000)]


# ---- the truth about what was written


async def test_a_lost_reply_is_unknown_and_its_retry_stores_nothing_twice(engine: Engine) -> None:
    prefix = new_prefix()
    async with _cutting_proxy(engine) as (port, cut):
        async with open_store(f"redis://127.0.0.1:{port}/0?prefix={prefix}") as store:
            await store.append("s", say("first"))
            cut.set()
            with pytest.raises(OutcomeUnknown):
                await store.append("s", say("second"), turn="t")
            cut.clear()
            receipt = await store.append("s", say("second"), turn="t")
            assert (receipt.first, receipt.last) == (2, 2)
            assert await texts(store, "s") == ["first", "second"]


@asynccontextmanager
async def _cutting_proxy(engine: Engine) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Passes everything on; while the event is set, the engine's next answer is dropped and the connection cut."""
    cut = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: bool) -> None:
        while data := await reader.read(65536):
            if cuts and cut.is_set():
                break
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        engine_reader, engine_writer = await asyncio.open_unix_connection(str(engine.endpoint.socket))
        await asyncio.gather(
            pass_on(reader, engine_writer, False),
            pass_on(engine_reader, writer, True),
            return_exceptions=True,
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], cut
        await asyncio.gather(*serving)


async def test_an_idle_store_finds_its_connection_closed_before_it_sends() -> None:
    with started("redis@7", "aof-always") as engine:
        async with open_store(address(engine)) as store:
            await store.append("s", say("before"))
            # The event loop does not run meanwhile, so nothing but the socket itself can tell.
            engine.kill()
            engine.restart()
            await store.append("s", say("after"))
            assert await texts(store, "s") == ["before", "after"]


CONNECTING_STEPS = 40
"""More turns of the event loop than a connection takes until it waits for its first answer."""


async def test_a_caller_may_give_up_at_any_moment_of_connecting() -> None:
    with started("redis@7", "none") as engine:
        assert isinstance(engine, Pausable)
        async with open_store(address(engine), timeout_s=60) as store:
            engine.pause()  # it takes connections, and answers nothing
            for steps in range(CONNECTING_STEPS):
                reading = asyncio.create_task(store.history("s"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait([reading], timeout=10)
                assert reading.done(), (
                    f"after {steps} turns of the event loop it goes on although it was cancelled"
                )
            engine.resume()
            assert await texts(store, "s") == []


async def test_a_pool_in_use_is_named_and_nothing_was_sent() -> None:
    with started("redis@7", "none") as engine:
        assert isinstance(engine, Pausable)
        async with open_store(address(engine), pool_size=1, timeout_s=0.3) as store:
            await store.append("s", say("0"))
            engine.pause()
            outcomes = await asyncio.gather(
                *(store.append("s", say(str(n))) for n in range(1, 5)), return_exceptions=True
            )
            engine.resume()
            assert isinstance(outcomes[0], OutcomeUnknown)
            for outcome in outcomes[1:]:
                assert isinstance(outcome, NotWritten)
                assert "pool_size=1" in str(outcome)
            await store.append("s", say("5"))
            assert await texts(store, "s") in (["0", "1", "5"], ["0", "5"])


async def test_closing_answers_those_who_wait_for_a_connection() -> None:
    with started("redis@7", "none") as engine:
        assert isinstance(engine, Pausable)
        store = await open_store(address(engine), pool_size=1, timeout_s=60)
        await store.append("s", say("x"))
        engine.pause()
        reads = [asyncio.create_task(store.history("s")) for _ in range(5)]
        await asyncio.sleep(0.01)
        await store.close()
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreClosed}
        engine.resume()


async def test_reads_share_the_pool_and_wait_for_it(engine: Engine) -> None:
    async with open_store(address(engine), pool_size=2) as store:
        await store.append("s", say("x"))
        found = await asyncio.gather(*(store.history("s") for _ in range(40)), store.append("s", say("y")))
        assert all(found)
        with hands_on(engine) as hands:
            assert len(hands.client_list()) <= 3


async def test_busy_readers_do_not_starve_a_writer(engine: Engine) -> None:
    async with open_store(address(engine), pool_size=1, timeout_s=3) as store:
        await store.append("s", say("0"))
        done = False

        async def read() -> None:
            while not done:
                await store.history("s")

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(1, 20):
            await store.append("s", say(str(number)))
        done = True
        await asyncio.gather(*readers)
        assert await texts(store, "s") == [str(number) for number in range(20)]


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [("maxmemory", "1", "maxmemory"), ("min-replicas-to-write", "1", "replicas")],
)
async def test_an_engine_that_takes_no_writes(engine: Engine, setting: str, value: str, word: str) -> None:
    async with open_store(address(engine), ttl=timedelta(hours=1), refresh="read") as store:
        receipt = await store.append("s", say("before"), turn="t")
        with hands_on(engine) as hands:
            hands.config_set(setting, value)
            try:
                with pytest.raises(NotWritten, match=word):
                    await store.append("s", say("during"))
                with pytest.raises(NotWritten, match=word):
                    await store.append("other", say("during"), turn="t", expect=0)
                assert await store.append("s", say("before"), turn="t") == receipt
                assert await texts(store, "s") == ["before"]
            finally:
                hands.config_set(setting, "0")
        assert (await store.append("s", say("after"))).last == 2


async def test_a_key_of_another_kind_is_said_to_be_one(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        with hands_on(engine) as hands:
            hands.set(f"{prefix}:{{ss}}:m", "not a list")
            with pytest.raises(NotWritten, match="did not write"):
                await store.append("s", say("x"), turn="t")
            assert not hands.exists(f"{prefix}:{{ss}}:c", f"{prefix}:{{ss}}:t")


# ---- the protocol


REPLIES: st.SearchStrategy[Reply] = st.recursive(
    st.one_of(st.none(), st.integers(-(2**62), 2**62), st.binary(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(st.text("\r\n$3a", max_size=6).map(str.encode), min_size=8, max_size=30),
    ),
    max_leaves=20,
)


def _as_sent(reply: Reply) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    assert isinstance(reply, list)
    return b"*%d\r\n" % len(reply) + b"".join(map(_as_sent, reply))


@given(st.lists(REPLIES, max_size=5), st.data())
def test_replies_in_pieces_of_any_size(replies: list[Reply], data: st.DataObject) -> None:
    sent = b"".join(map(_as_sent, replies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    parser = Replies()
    found: list[Reply] = []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        found += parser.feed(sent[start:end])
    assert found == replies


@pytest.mark.parametrize(
    "sent",
    [
        b"$-7\r\n",
        b"$-6\r\n",
        b"*-2\r\n",
        b"*1\r\n" * 100,
        b":x\r\n",
        b":5\r\n\r\n:6\r\n",
        b"HTTP/1.1 400\r\n",
    ],
    ids=[
        "goes back",
        "goes back into itself",
        "fewer than none",
        "nested without end",
        "no number",
        "an empty line",
        "no RESP",
    ],
)
def test_what_no_redis_says_is_an_error(sent: bytes) -> None:
    """The first used to be read for ever, and the event loop with it."""
    with pytest.raises(ValueError, match=r"not RESP2|invalid literal"):
        Replies().feed(sent)


def test_an_error_is_a_value_with_a_code() -> None:
    (error, fine) = Replies().feed(b"-NOSCRIPT No matching script.\r\n+OK\r\n")
    assert isinstance(error, ReplyError)
    assert (error.code, fine) == ("NOSCRIPT", b"OK")


def test_a_packed_command() -> None:
    assert pack("SET", b"k\x00", 7) == b"*3\r\n$3\r\nSET\r\n$2\r\nk\x00\r\n$1\r\n7\r\n"
