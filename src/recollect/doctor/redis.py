"""Redis and Valkey: what the settings of a running server would lose.

Asks with INFO and CONFIG GET only, which change nothing. A managed service or an ACL may refuse CONFIG; INFO still
says whether there is an append-only file at all, so "no AOF" is a symptom even then, and only the fsync policy stays
unknown.

Whether WAITAOF really waits cannot be tested without writing; the store tests it on opening. Here, only builds known
to answer too early are named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from redis.exceptions import AuthenticationError, RedisError

from recollect.doctor import disk
from recollect.doctor.diagnosis import Diagnosis, LoginRefused, Symptom, after_promotion, ordered
from recollect.doctor.redis_answers import QUESTIONS, QUESTIONS_COUNT, RedisAnswers, read
from recollect.doctor.redis_persistence import persistence
from recollect.errors import EngineUnavailable
from recollect.guarantees import promise
from recollect.printable import counted
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.wire import Reply, WireLost, connect

ON_A_DISK = (
    "mount a volume or a disk for the folder that CONFIG GET dir names",
    "copy the data there with a replica or BGSAVE before switching; never just restart on an empty folder",
)
_WHOLE_CLUSTER = "examine the whole cluster: redis+cluster://host:port"
WAITS_TOO_EARLY = {"redis": ("7.4.0", "7.4.1", "7.4.2"), "valkey": ("9.1.2",)}


async def examine(url: str, timeout_s: float) -> Diagnosis:
    return diagnose(await answers_of(parse_address(url), timeout_s))


async def answers_of(address: Address, timeout_s: float) -> RedisAnswers:
    """What one server says about itself."""
    return read(address.shown, await asked(address, QUESTIONS, QUESTIONS_COUNT, timeout_s))


async def asked(address: Address, request: bytes, count: int, timeout_s: float) -> list[Reply]:
    """Its replies; `EngineUnavailable` if it does not answer, or not this user."""
    try:
        async with asyncio.timeout(timeout_s):
            wire = await connect(address.connection(), timeout_s)
            try:
                return await wire.replies(request, count)
            finally:
                wire.abort()
    except AuthenticationError as error:
        raise LoginRefused(f"{address.shown}: {error}") from None
    except (
        RedisError,
        OSError,
        WireLost,
        TimeoutError,
        RecursionError,
    ) as error:  # RecursionError: arrays nested without end
        reason = silence(timeout_s) if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        raise EngineUnavailable(f"{address.shown}: {reason}") from None


def silence(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s"


def diagnose(answers: RedisAnswers) -> Diagnosis:
    symptoms: Iterable[Symptom | None] = [
        *persistence(answers),
        _eviction(answers),
        _replicas(answers),
        _early_waitaof(answers),
        _role(answers),
        _disk(answers),
        _not_persisted(answers),
    ]
    if answers.is_replica:
        symptoms = after_promotion(symptoms)
    if answers.is_sentinel:
        symptoms = [_role(answers)]  # it has no settings that could keep or lose anything
    settings = {name: value for name, value in (answers.config or {}).items() if name != "dir"}
    told = ("role", "connected_slaves", "aof_enabled", "aof_rewrite_in_progress", "maxmemory")
    settings |= {name: answers.info[name] for name in told if name in answers.info}
    return Diagnosis(
        address=answers.address,
        engine=answers.engine,
        version=answers.version,
        policy=answers.policy,
        settings=settings,
        findings=ordered(symptoms),
    )


def _eviction(answers: RedisAnswers) -> Symptom | None:
    eviction = (answers.config or {}).get("maxmemory-policy") or answers.info.get("maxmemory_policy")
    if eviction in (None, "noeviction"):
        return None
    limit = answers.number("maxmemory")
    given = promise("redis", "none", "evict")
    keys = "sessions with a time to live" if eviction.startswith("volatile") else "any session"
    steps = ("CONFIG SET maxmemory-policy noeviction (writes are then refused, loudly, when memory is full)",)
    return Symptom(
        name="eviction",
        level="loss" if limit else "note",
        sentence=f"can lose {keys}, whole, evicted silently when memory is full"
        + ("" if limit else "; there is no maxmemory yet, so nothing is evicted now"),
        when=("evict",),
        window="any age",
        setting=f"maxmemory-policy {eviction}, maxmemory {limit:,} bytes",
        procedure=(*steps, "give memory to spare, and watch used_memory; then CONFIG REWRITE"),
        source=given.source,
    )


def _replicas(answers: RedisAnswers) -> Symptom | None:
    if not answers.number("connected_slaves"):
        return None
    given = promise("redis", "none", "failover")
    needed, lag_s = answers.number("min-replicas-to-write"), answers.number("min-replicas-max-lag")
    bounded = needed > 0 and lag_s > 0
    hidden = answers.config is None
    return Symptom(
        name="failover",
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=("failover",),
        window=f"up to {lag_s} s" if bounded else "settings hidden" if hidden else "no bound",
        window_s=float(lag_s) if bounded else None,
        setting=f"{counted(answers.number('connected_slaves'), 'replica')}, min-replicas-to-write {needed}",
        procedure=(
            "open_store(url, replicas=1): each append then waits (WAIT) until a replica has it",
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, so that a primary cut off from its "
            "replicas stops taking writes; then CONFIG REWRITE",
        ),
        source=given.source,
    )


def _early_waitaof(answers: RedisAnswers) -> Symptom | None:
    if answers.version not in WAITS_TOO_EARLY[answers.engine]:
        return None
    return Symptom(
        name="waitaof-too-early",
        level="note",
        sentence=f"WAITAOF of {answers.engine} {answers.version} answers before the fsync: do not rely on it",
        procedure=(
            "use appendfsync always, or another release; open_store(url, durability='fsynced') notices it and "
            "watches for the fsync itself",
        ),
        source="redis/redis pull request 13793; measured",
    )


def _role(answers: RedisAnswers) -> Symptom | None:
    if answers.is_sentinel:
        return Symptom(
            name="is-a-sentinel",
            level="cannot-tell",
            sentence="cannot tell what is lost: this is a Sentinel, which keeps no data",
            procedure=("examine what it watches: redis+sentinel://host:port/SERVICE",),
        )
    if answers.mode == "cluster" and not answers.is_replica:
        return Symptom(
            name="one-node-of-a-cluster",
            level="note",
            sentence="this is one node of a cluster; the others have settings of their own",
            procedure=(_WHOLE_CLUSTER,),
        )
    if not answers.is_replica:
        return None
    primary = f"{answers.info.get('master_host')}:{answers.info.get('master_port')}"
    return Symptom(
        name="is-a-replica",
        level="cannot-tell",
        sentence="cannot tell what is lost: this is a replica, and writes are acknowledged by its primary",
        procedure=(_WHOLE_CLUSTER if answers.mode == "cluster" else f"examine the primary: {primary}",),
    )


def _disk(answers: RedisAnswers) -> Symptom | None:
    folder = (answers.config or {}).get("dir", "")
    if answers.policy == "none":
        return None
    names = ("redis", "valkey")
    mounts = disk.mounts_of_process(answers.number("process_id"), folder, names) if folder else None
    return disk.look_at(folder, mounts, ON_A_DISK)


def _not_persisted(answers: RedisAnswers) -> Symptom | None:
    """The running settings are not always the configured ones."""
    if answers.policy is None or not answers.policy.startswith(("aof", "mixed")):
        return None
    file = answers.info.get("config_file", "")
    return Symptom(
        name="running-settings",
        level="note",
        sentence="these are the settings of the running server"
        + ("; it has no configuration file" if not file else "")
        + ": after a restart those of its configuration or command line hold",
        procedure=("compare them with the configuration; CONFIG REWRITE writes them there",),
    )
