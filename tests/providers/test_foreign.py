"""Nothing of anybody else's is touched: names prove nothing, and what cannot be read is not ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recollect.verify import engines
from recollect.verify.host.folder import this_process
from recollect.verify.host.marker import Marker
from recollect.verify.providers import lease
from recollect.verify.providers.lease import Candidate, Lease
from recollect.verify.wire import pgwire, resp
from tests.providers import foreign

OF_A_REAL_ENGINE = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
GONE = replace(this_process(), started_ticks=1)
LONG_AGO = 1.0


def left(marker: Marker, thing: str) -> Lease:
    """Of a run that was killed."""
    return Lease(marker.proof, thing, GONE, LONG_AGO)


OTHERS = Marker("0123456789abcdef0123456789abcdef")
"""A marker whose lease somebody has copied."""

hexadecimal = st.text("0123456789abcdef", min_size=8, max_size=40)
names = st.one_of(
    st.sampled_from(["production", "customers", "deadbeef0001", OTHERS.name]),
    st.from_regex(r"[a-z0-9]{8,24}", fullmatch=True),
    hexadecimal,
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
)
nearly_leases = st.fixed_dictionaries(
    {},
    optional={
        "proof": st.one_of(st.just(OTHERS.proof), hexadecimal, st.none(), st.integers()),
        "thing": st.one_of(st.sampled_from(["keys", "database 5", "schema 2200"]), st.text(), st.none()),
        "owner": st.one_of(
            st.just(asdict(GONE)),
            st.fixed_dictionaries({"pid": st.integers()}),
            st.none(),
            st.dictionaries(st.text(), st.text()),
        ),
        "expires": st.one_of(st.floats(), st.integers(), st.text(), st.none()),
        "note": st.text(),
    },
).map(json.dumps)
comments = st.one_of(
    st.sampled_from(
        [
            "the production database, do not drop",
            "null",
            "{}",
            "[" * 100_000,
            json.dumps({"owner": asdict(GONE), "expires": 0}),
            left(OTHERS, "keys").encoded(),
            left(Marker("production"), "keys").encoded(),
        ]
    ),
    nearly_leases,
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
)


@given(names, st.sampled_from(["keys", "database 5"]), st.one_of(st.none(), st.text(), comments))
@example(OTHERS.name[:-1] + "x", "keys", left(OTHERS, "keys").encoded())
@example(OTHERS.name, "database 5", left(OTHERS, "database 6").encoded())
@example(OTHERS.name, "keys", left(Marker(OTHERS.proof.upper()), "keys").encoded())
@example("\ud800", "keys", "\ud800")
def test_nothing_is_left_over_but_what_a_run_made_and_left(
    name: str, thing: str, encoded: str | None
) -> None:
    ours = (name, thing) == (OTHERS.name, "keys") and _is_the_lease_of(OTHERS, encoded)
    assert Candidate(name, thing, encoded).is_left(time.time()) is ours


def _is_the_lease_of(marker: Marker, encoded: str | None) -> bool:
    """Hypothesis also finds a whole one; then it is what a killed run wrote."""
    told = lease.read(encoded)
    return told is not None and (told.proof, told.thing) == (marker.proof, "keys") and told.over(time.time())


@given(st.binary(min_size=16, max_size=16), st.data())
def test_one_other_digit_and_it_is_not_ours(proof: bytes, data: st.DataObject) -> None:
    marker = Marker(proof.hex())
    encoded = left(marker, "keys").encoded()
    assert Candidate(marker.name, "keys", encoded).is_left(time.time())
    place = data.draw(st.integers(0, len(marker.name) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef"))
    name = marker.name[:place] + digit + marker.name[place + 1 :]
    assert Candidate(name, "keys", encoded).is_left(time.time()) is (name == marker.name)


@pytest.mark.parametrize(
    ("change", "expires_in_s", "over"),
    [
        ({}, 100, False),
        ({}, -1, False),  # alive for certain, however long it takes
        ({"started_ticks": 1}, 100, True),
        ({"boot": "another machine"}, 100, False),
        ({"boot": "another machine"}, -1, True),
        ({"namespace": "pid:[1]"}, 100, False),
        ({"namespace": "pid:[1]"}, -1, True),
    ],
)
def test_a_lease_is_over_when_its_owner_is_gone_or_its_time_is_up(
    change: dict[str, Any], expires_in_s: float, over: bool
) -> None:
    now = time.time()
    taken = Lease(OTHERS.proof, "keys", replace(this_process(), **change), now + expires_in_s)
    assert lease.read(taken.encoded()) == taken
    assert taken.over(now) is over


# ---- on real engines


@pytest.fixture(scope="module")
def redis() -> Iterator[Any]:
    engine = engines.create("redis", "none")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    engine: Any = engines.create("postgres", "fsync-off")
    engine.start()
    engine.ask("CREATE ROLE humble LOGIN")
    engine.ask("GRANT CREATE ON DATABASE postgres TO humble")
    yield engine
    engine.close()


def visit(url: str) -> None:
    """All that a run does to an engine at an address."""
    attached = engines.attach(url)
    attached.start()
    attached.renew()
    attached.stop()


@OF_A_REAL_ENGINE
@given(st.dictionaries(names, comments, min_size=1, max_size=4), st.sampled_from(["SET", "RPUSH"]))
@example({"customers": "not a lease"}, "SET")
def test_redis_keys_of_others_stay(redis: Any, leases: dict[str, str], how: str) -> None:
    with resp.Connection(replace(redis.address, database=15)) as connection:
        connection.ask("FLUSHDB")
        for name, value in leases.items():
            if name == OTHERS.name:
                continue  # whoever copies a whole lease to its own place has made a namespace of ours
            connection.ask(how, f"recollect:lease:{name}", value)
            connection.ask("SET", f"app:{name}:1", "precious", "EX", "5000")
            connection.ask("RPUSH", f"app:{name}:2", "precious")
    before = foreign.redis(redis.address)
    visit(f"redis://127.0.0.1:{redis.port}/15")
    assert foreign.redis(redis.address) == before


def test_redis_keys_of_killed_runs_go_and_no_others(redis: Any) -> None:
    marker = Marker.new()
    with resp.Connection(replace(redis.address, database=15)) as connection:
        connection.ask("FLUSHDB")
        connection.ask("SET", "somebody-elses", "precious")
        before = foreign.redis(redis.address)
        connection.ask("SET", f"chat:{marker.name}:1", "left")
        connection.ask("SET", f"recollect:lease:{marker.name}", left(marker, "keys").encoded())
    visit(f"redis://127.0.0.1:{redis.port}/15")
    assert foreign.redis(redis.address) == before


postgres_names = names.map(lambda name: f"recollect_{name}").filter(lambda name: len(name.encode()) < 60)


@OF_A_REAL_ENGINE
@given(postgres_names, comments.filter(lambda text: len(text) < 5_000))
@example("recollect_production", "the production database, do not drop")
@example(f"recollect_{OTHERS.name}", left(OTHERS, "schema 5").encoded())
def test_postgres_schemas_of_others_stay(postgres: Any, name: str, comment: str) -> None:
    quoted = pgwire.quoted(name)
    postgres.ask(f"CREATE SCHEMA {quoted} AUTHORIZATION humble")
    try:
        postgres.ask(f"CREATE TABLE {quoted}.chats AS SELECT generate_series(1, 100) AS message")
        postgres.ask(f"COMMENT ON SCHEMA {quoted} IS {pgwire.literal(comment)}")
        before = foreign.postgres(postgres.address)
        visit(postgres.endpoint.socket_url.replace("postgres@", "humble@"))
        assert foreign.postgres(postgres.address) == before
    finally:
        postgres.ask(f"DROP SCHEMA {quoted} CASCADE")


@settings(OF_A_REAL_ENGINE, max_examples=8)
@given(postgres_names, comments.filter(lambda text: len(text) < 5_000))
@example("recollect_production", "the production database, do not drop")
@example(f"recollect_{OTHERS.name}", left(OTHERS, "database 5").encoded())
def test_postgres_databases_of_others_stay(postgres: Any, name: str, comment: str) -> None:
    quoted = pgwire.quoted(name)
    postgres.ask(f"CREATE DATABASE {quoted}")
    try:
        with pgwire.Connection(replace(postgres.address, database=name)) as connection:
            connection.ask("CREATE TABLE chats AS SELECT generate_series(1, 1000) AS message")
        postgres.ask(f"COMMENT ON DATABASE {quoted} IS {pgwire.literal(comment)}")
        before = foreign.postgres(postgres.address)
        visit(postgres.endpoint.url)
        assert foreign.postgres(postgres.address) == before
    finally:
        postgres.ask(f"DROP DATABASE {quoted} WITH (FORCE)")


def create(postgres: Any, kind: str, name: str, role: str) -> None:
    postgres.ask(f"CREATE {kind} {name} {'OWNER' if kind == 'DATABASE' else 'AUTHORIZATION'} {role}")


def abandoned(postgres: Any, kind: str, role: str) -> str:
    """What a killed run leaves."""
    marker = Marker.new()
    name = f"recollect_{marker.name}"
    catalogue, column = ("pg_database", "datname") if kind == "DATABASE" else ("pg_namespace", "nspname")
    create(postgres, kind, name, role)
    number = postgres.ask(f"SELECT oid FROM {catalogue} WHERE {column} = '{name}'")[0][0]
    note = left(marker, f"{kind.lower()} {number}").encoded()
    postgres.ask(f"COMMENT ON {kind} {name} IS {pgwire.literal(note)}")
    return name


@pytest.mark.parametrize(("kind", "role"), [("DATABASE", "postgres"), ("SCHEMA", "humble")])
def test_postgres_namespaces_of_killed_runs_go_and_no_others(postgres: Any, kind: str, role: str) -> None:
    url = postgres.endpoint.socket_url.replace("postgres@", f"{role}@")
    kept = abandoned(postgres, kind, role)
    postgres.ask(f"ALTER {kind} {kept} RENAME TO evidence")
    restored = abandoned(postgres, kind, role)
    comment = _comment(postgres, kind, restored)
    postgres.ask(f"DROP {kind} {restored}")
    create(postgres, kind, restored, role)  # as a dump makes it again: name and comment, another number
    postgres.ask(f"COMMENT ON {kind} {restored} IS {pgwire.literal(str(comment))}")
    try:
        before = foreign.postgres(postgres.address)
        gone = abandoned(postgres, kind, role)
        assert gone in str(foreign.postgres(postgres.address))
        visit(url)
        assert foreign.postgres(postgres.address) == before
    finally:
        for name in ("evidence", restored):
            postgres.ask(f"DROP {kind} {name}")


def _comment(postgres: Any, kind: str, name: str) -> str | None:
    described = (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname ="
        if kind == "DATABASE"
        else "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname ="
    )
    comment: str | None = postgres.ask(f"{described} '{name}'")[0][0]
    return comment


def test_nobody_is_thrown_out_of_a_database_that_was_left(postgres: Any) -> None:
    name = abandoned(postgres, "DATABASE", "postgres")
    with pgwire.Connection(replace(postgres.address, database=name)) as somebody:
        visit(postgres.endpoint.url)
        assert somebody.value("SELECT current_database()") == name
    postgres.ask(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.parametrize("kind", ["DATABASE", "SCHEMA"])
def test_what_others_made_in_the_place_of_our_namespace_stays(postgres: Any, kind: str) -> None:
    role = "postgres" if kind == "DATABASE" else "humble"
    attached = engines.attach(postgres.endpoint.socket_url.replace("postgres@", f"{role}@"))
    name = attached.start().namespace
    postgres.ask(f"DROP {kind} {name}")
    create(postgres, kind, str(name), role)
    before = foreign.postgres(postgres.address)
    with pytest.raises(engines.NotOurs, match="is no longer ours"):
        attached.renew()
    attached.stop()
    assert foreign.postgres(postgres.address) == before
    postgres.ask(f"DROP {kind} {name}")


def test_a_store_in_a_schema_does_not_come_upon_the_tables_of_others(postgres: Any) -> None:
    attached = engines.attach(postgres.endpoint.socket_url.replace("postgres@", "humble@"))
    assert attached.start().url.endswith("%2Cpublic"), "it holds nothing but extensions"
    attached.stop()
    postgres.ask("CREATE TABLE public.messages AS SELECT 'precious' AS content")
    try:
        postgres.ask("GRANT ALL ON public.messages TO PUBLIC")
        url = attached.start().url
        asked = subprocess.run(
            [sys.executable, "-c", TAKES_WHAT_IT_FINDS, url], capture_output=True, text=True, check=False
        )
        assert 'relation "messages" does not exist' in asked.stderr
        attached.stop()
        assert postgres.ask("SELECT content FROM public.messages") == [("precious",)]
    finally:
        postgres.ask("DROP TABLE public.messages")


TAKES_WHAT_IT_FINDS = """
import asyncio, sys, asyncpg

async def main():
    connection = await asyncpg.connect(sys.argv[1])
    await connection.execute("INSERT INTO messages VALUES ('a test')")

asyncio.run(main())
"""
