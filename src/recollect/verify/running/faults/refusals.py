"""The engine is up and says no: real refusals, provoked while clients work.

Each is what an operator, a limit or another client does to a busy engine. Nothing is broken, so nothing acknowledged
may be lost, nothing may be stored twice, and the store has to go on when it is over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.host import ports
from recollect.verify.running.faults.consoles import postgres_console, redis_console
from recollect.verify.running.faults.fault import Fault, Injection, container_of, ours_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.faults.sqlite_refusals import damage_tables, lock_file, lock_tables
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire.pgwire import Connection as PgConnection
from recollect.verify.wire.pgwire import PgError
from recollect.verify.wire.resp import Connection as RedisConnection
from recollect.verify.wire.resp import RespError, fields_of

HELD_S = 0.4
AGAIN_S = 0.04
"""How often a refusal that is over in a moment is provoked again."""
BUSY_AFTER_MS = 20
STATEMENT_MS = 40
DEADLOCK_MS = 200
DEADLOCKS = 3
WAITER_TIMEOUT_S = 2.0
_LOCK_ONE, _LOCK_TWO = 7_340_001, 7_340_002
_EACH_PADDING = "for i = 1, 8000 do {} end"
LOADING = "loading"
_NATIVE_ONLY = "only a Redis that runs as a process on this machine is slowed down while it loads"
_SLOW_TO_LOAD = ("key-load-delay 50", "loading-process-events-interval-bytes 1024")
"""Microseconds for each key, and how often it looks at its clients meanwhile."""


@dataclass(frozen=True)
class ProvokedRefusal:
    name: str
    engine: str
    says: str
    """What the engine answers."""
    provoke: Callable[[FaultedRun], None]


def _repeatedly(run: FaultedRun, once: Callable[[], object]) -> None:
    end = time.monotonic() + HELD_S
    while time.monotonic() < end:
        once()
        run.go_on(AGAIN_S)


# ---- Redis


def _out_of_memory(run: FaultedRun) -> None:
    engine = redis_console(run.endpoint)
    used = int(fields_of(engine.ask("INFO", "memory"))["used_memory"])
    engine.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    engine.ask("CONFIG", "SET", "maxmemory", str(max(1, used // 2)))
    run.go_on(HELD_S)
    engine.ask("CONFIG", "SET", "maxmemory", "0")


def _read_only_replica(run: FaultedRun) -> None:
    """It is told to follow a primary that is not there: it keeps its data and takes no more writes."""
    engine = redis_console(run.endpoint)
    with contextlib.closing(ports.Reservation()) as nobody:
        engine.ask("REPLICAOF", ports.HOST, str(nobody.port))
        run.go_on(HELD_S)
        engine.ask("REPLICAOF", "NO", "ONE")


def _busy_script(run: FaultedRun) -> None:
    """A script that does not end, until it is killed."""
    engine = redis_console(run.endpoint)
    engine.ask("CONFIG", "SET", "lua-time-limit", str(BUSY_AFTER_MS))

    def spin() -> None:
        with contextlib.suppress(RespError, OSError), RedisConnection(engine.address) as connection:
            connection.ask("EVAL", "while true do end", "0")

    spinning = threading.Thread(target=spin, daemon=True)
    spinning.start()
    run.go_on(HELD_S)
    while spinning.is_alive():
        with contextlib.suppress(RespError):  # it has not begun yet, or is over
            engine.ask("SCRIPT", "KILL")
        run.go_on(AGAIN_S)
    engine.ask("CONFIG", "SET", "lua-time-limit", "5000")


def _no_script(run: FaultedRun) -> None:
    engine = redis_console(run.endpoint)
    _repeatedly(run, lambda: engine.ask("SCRIPT", "FLUSH"))


def _still_loading(run: FaultedRun) -> None:
    """A restart of a server with many keys, each of which takes it a moment to load: it answers, and says LOADING."""
    engine, policy = run.engine, run.scenario.policy
    if not isinstance(engine, RedisEngine):
        run.skip(_NATIVE_ONLY)
    if policy in ("none", "custom"):
        run.skip("after a restart there is nothing to load, or nobody knows whether there is")
    engine.ask("EVAL", _EACH_PADDING.format("redis.call('SET', 'recollect:padding:' .. i, i)"), "0")
    run.stop_engine()
    # 6.2 does not know the second line: it looks at its clients after every 1,024 commands, or two megabytes.
    engine.more_lines = _SLOW_TO_LOAD if int(engine.version.split(".")[0]) >= 7 else _SLOW_TO_LOAD[:1]
    run.start_engine(lambda: _started_beside(run, engine))
    engine.more_lines = ()
    engine.ask("EVAL", _EACH_PADDING.format("redis.call('DEL', 'recollect:padding:' .. i)"), "0")


def _started_beside(run: FaultedRun, engine: RedisEngine) -> Endpoint:
    """Starts it in a thread of its own, so that the clients meet it while it loads."""
    with ThreadPoolExecutor(1) as starting:
        started = starting.submit(engine.restart, run.engine_env or None)
        while not started.done():
            run.go_on(AGAIN_S)
        return started.result()


# ---- PostgreSQL


@contextlib.contextmanager
def _settings(run: FaultedRun, **settings: str) -> Iterator[PgConnection]:
    """Settings of the server, in force for every session that has none of its own. Ours has: it outlives them."""
    with postgres_console(run.endpoint) as control:
        for name in ("statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"):
            control.ask(f"SET {name} = 0")
        for name, value in settings.items():
            control.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        control.ask("SELECT pg_reload_conf()")
        yield control
        for name in settings:
            control.ask(f"ALTER SYSTEM RESET {name}")
        control.ask("SELECT pg_reload_conf()")


def _with_settings(**settings: str) -> Callable[[FaultedRun], None]:
    def provoke(run: FaultedRun) -> None:
        with _settings(run, **settings):
            run.go_on(HELD_S)

    return provoke


def _terminated(run: FaultedRun) -> None:
    others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with _settings(run) as control:
        _repeatedly(
            run, lambda: control.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        )


def _tables(connection: PgConnection) -> list[str]:
    rows = connection.ask(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    return [str(row[0]) for row in rows]


def _slow_statements(run: FaultedRun) -> None:
    """Every table is locked for a while, and statements are not allowed to wait that long."""
    with _settings(run, statement_timeout=f"{STATEMENT_MS}ms") as control:
        tables = ", ".join(_tables(control))
        if not tables:
            run.skip("the store has no tables that could be locked")
        control.ask("BEGIN")
        control.ask(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        run.go_on(HELD_S)
        control.ask("COMMIT")


def _deadlock(run: FaultedRun) -> None:
    """A trigger makes every insert take two locks, one after the other; we hold the second and ask for the first.

    The store's session looks for deadlocks first, so its transaction is the one that is ended.
    """
    with _settings(run, deadlock_timeout=f"{DEADLOCK_MS}ms") as control:
        tables = _tables(control)
        control.ask("SET deadlock_timeout = '3s'")
        control.ask(
            "CREATE FUNCTION recollect_two_locks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM pg_advisory_xact_lock({_LOCK_ONE}); PERFORM pg_advisory_xact_lock({_LOCK_TWO});"
            " RETURN NULL; END $$"
        )
        for table in tables:
            control.ask(
                f"CREATE TRIGGER recollect_two_locks AFTER INSERT ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION recollect_two_locks()"
            )
        for _ in range(DEADLOCKS):
            _lock_crosswise(run, control)
        for table in tables:
            control.ask(f"DROP TRIGGER recollect_two_locks ON {table}")
        control.ask("DROP FUNCTION recollect_two_locks()")


def _lock_crosswise(run: FaultedRun, connection: PgConnection) -> None:
    connection.ask(f"SELECT pg_advisory_lock({_LOCK_TWO})")
    waiting = (
        f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {_LOCK_TWO} AND NOT granted"
    )
    end = time.monotonic() + WAITER_TIMEOUT_S
    while connection.value(waiting) == "0" and time.monotonic() < end:
        run.go_on(0.005)
    # On a busy machine the other one may not look in time: then we are ended.
    with contextlib.suppress(PgError):
        connection.ask(f"SELECT pg_advisory_lock({_LOCK_ONE})")
    connection.ask("SELECT pg_advisory_unlock_all()")
    run.go_on(AGAIN_S)


REFUSALS: dict[str, ProvokedRefusal] = {
    refusal.name: refusal
    for refusal in (
        ProvokedRefusal("oom", "redis", "OOM", _out_of_memory),
        ProvokedRefusal("readonly", "redis", "READONLY", _read_only_replica),
        ProvokedRefusal("busy", "redis", "BUSY", _busy_script),
        ProvokedRefusal("noscript", "redis", "NOSCRIPT", _no_script),
        ProvokedRefusal(LOADING, "redis", "LOADING", _still_loading),
        ProvokedRefusal("deadlock", "postgres", "40P01", _deadlock),
        ProvokedRefusal(
            "serialization", "postgres", "40001", _with_settings(default_transaction_isolation="serializable")
        ),
        ProvokedRefusal("terminated", "postgres", "57P01", _terminated),
        ProvokedRefusal("statement-timeout", "postgres", "57014", _slow_statements),
        ProvokedRefusal(
            "idle-timeout",
            "postgres",
            "57P05",
            _with_settings(idle_session_timeout="10ms", idle_in_transaction_session_timeout="10ms"),
        ),
        ProvokedRefusal("read-only", "postgres", "25006", _with_settings(default_transaction_read_only="on")),
        ProvokedRefusal("locked", "sqlite", "SQLITE_BUSY", lock_file),
        ProvokedRefusal("table-locked", "sqlite", "SQLITE_LOCKED", lock_tables),
        ProvokedRefusal("corrupt", "sqlite", "SQLITE_CORRUPT", damage_tables),
    )
}


class EngineSaysNo(Injection):
    def strike(self) -> None:
        run, named = self.run, self.run.scenario.variant
        of_engine = [refusal for refusal in REFUSALS.values() if refusal.engine == run.scenario.engine_kind]
        if container_of(run.scenario) is not None:
            of_engine = [refusal for refusal in of_engine if refusal.name != LOADING]
        for refusal in [REFUSALS[named]] if named else of_engine:
            with run.striking("refused", refusal.name):
                refusal.provoke(run)
            run.go_on(AGAIN_S)


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := ours_only(scenario)) is not None:
        return reason
    engines = {refusal.engine for refusal in REFUSALS.values()}
    if scenario.engine_kind not in engines:
        return f"how {scenario.engine_kind} refuses is not known here"
    if scenario.variant and (wrong := REFUSALS[scenario.variant]).engine != scenario.engine_kind:
        return f"{wrong.name} is what {wrong.engine} says, not {scenario.engine_kind}"
    if scenario.variant == LOADING and container_of(scenario) is not None:
        return _NATIVE_ONLY
    return None


REFUSAL_FAULTS = (
    Fault(
        "refused",
        EngineSaysNo,
        verifies="an engine that is up and says no (out of memory, read-only, a deadlock, a serialization failure, a"
        " terminated session, a timeout, a lock, a damaged page, still loading) costs no acknowledged message, stores"
        " none twice, and does not stop the store for good",
        does_not_verify="how often a store tries again; refusals that last",
        obstacle=_obstacle,
        variants=("", *REFUSALS),
    ),
)
