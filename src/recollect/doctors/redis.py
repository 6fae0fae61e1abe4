"""Redis and Valkey: what the settings of a running server would lose.

Asked with INFO and CONFIG GET alone, which change nothing. A managed service or an ACL may refuse CONFIG; INFO
still tells whether there is an append-only file at all, so "no AOF" is a finding even then, and only the fsync policy
cannot be told.

Whether WAITAOF waits cannot be tried without writing; the store tries it when it opens. Here only the builds that are
known to answer too early are named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from redis.exceptions import RedisError

from recollect.doctors import disk
from recollect.doctors.diagnosis import Diagnosis, Finding, after_promotion, loss, ordered
from recollect.errors import CannotOpen, EngineUnavailable
from recollect.guarantees import promise, what_can_be_lost
from recollect.stores.redis_address import parse_address
from recollect.stores.redis_wire import Reply, ReplyError, WireLost, connect, pack

ASKED = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "stop-writes-on-bgsave-error",
    "maxmemory-policy",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "dir",
    "aof-load-truncated",
)
AOF_ON = (
    "on the running server: CONFIG SET appendonly yes",
    "wait until INFO persistence says aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok",
    "only then write it into the configuration: CONFIG REWRITE, or `appendonly yes` in redis.conf; a "
    "restart with a bare "
    "`appendonly yes` before that starts EMPTY, without an error",
)
FSYNC_ALWAYS = (
    "CONFIG SET appendfsync always (each acknowledgement then waits for an fsync)",
    "make it last: CONFIG REWRITE, or `appendfsync always` in redis.conf",
)
ON_A_DISK = (
    "mount a volume or a disk for the folder that CONFIG GET dir names",
    "copy the data there with a replica or BGSAVE before switching; never just restart on an empty folder",
)
WAITS_TOO_EARLY = {"redis": ("7.4.0", "7.4.1", "7.4.2"), "valkey": ("9.1.2",)}
KERNEL_WRITE_BACK_S = 30.0


@dataclass(frozen=True)
class Answers:
    """INFO, and CONFIG GET where it was allowed."""

    address: str
    info: dict[str, str]
    config: dict[str, str] | None
    refused: str
    """The engine's words for refusing CONFIG."""

    @property
    def engine(self) -> str:
        valkey = self.info.get("server_name") == "valkey" or "valkey_version" in self.info
        return "valkey" if valkey else "redis"

    @property
    def version(self) -> str:
        name = "valkey_version" if self.engine == "valkey" else "redis_version"
        return self.info.get(name, "")

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def policy(self) -> str | None:
        if self.config is None:
            return None
        if self.config.get("appendonly") != "yes":
            return "rdb" if self.config.get("save") else "none"
        fsync = self.config.get("appendfsync", "everysec")
        return "mixed" if fsync == "everysec" and self.config.get("save") else f"aof-{fsync}"

    def number(self, name: str) -> int:
        value = self.info.get(name, "") or (self.config or {}).get(name, "")
        return int(value) if value.lstrip("-").isdigit() else 0


async def examine(url: str, timeout_s: float) -> Diagnosis:
    address = parse_address(url)
    connection = address.connection(timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            wire = await connect(connection)
            try:
                request = pack("INFO") + b"".join(pack("CONFIG", "GET", name) for name in ASKED)
                replies = await wire.replies(request, 1 + len(ASKED))
            finally:
                wire.abort()
    except (RedisError, OSError, WireLost, TimeoutError) as error:
        raise EngineUnavailable(f"{address.shown}: {str(error) or type(error).__name__}") from None
    return diagnose(_answers(address.shown, replies))


def _answers(shown: str, replies: list[Reply]) -> Answers:
    info: dict[str, str] = {}
    first = replies[0]
    if isinstance(first, bytes):
        lines = first.decode("utf-8", "replace").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
    elif not isinstance(first, ReplyError) or first.code != "NOPERM":
        raise CannotOpen(f"{shown} does not answer INFO as Redis does: {first}")
    config: dict[str, str] = {}
    for reply in replies[1:]:
        if isinstance(reply, ReplyError):
            return Answers(shown, info, None, reply.text)
        if isinstance(reply, list):
            texts = [item.decode("utf-8", "replace") for item in reply if isinstance(item, bytes)]
            config.update(zip(texts[::2], texts[1::2], strict=False))
    if "appendonly" not in config:
        return Answers(shown, info, None, "CONFIG GET appendonly comes back empty")
    return Answers(shown, info, config, "")


def diagnose(answers: Answers) -> Diagnosis:
    findings: Iterable[Finding | None] = [
        *_persistence(answers),
        _snapshots_fail(answers),
        _eviction(answers),
        _replicas(answers),
        _early_waitaof(answers),
        _role(answers),
        _disk(answers),
        _not_persisted(answers),
    ]
    if answers.is_replica:
        findings = after_promotion(findings)
    settings = {name: value for name, value in (answers.config or {}).items() if name != "dir"}
    told = ("role", "connected_slaves", "aof_enabled", "aof_rewrite_in_progress", "maxmemory")
    settings |= {name: answers.info[name] for name in told if name in answers.info}
    return Diagnosis(
        address=answers.address,
        engine=answers.engine,
        version=answers.version,
        policy=answers.policy,
        settings=settings,
        findings=ordered(findings),
    )


# ---- persistence


def _persistence(answers: Answers) -> list[Finding | None]:
    policy = answers.policy
    if policy is None:
        return [_hidden(answers)]
    if policy == "none":
        return [_without_persistence(answers)]
    if policy == "rdb":
        return [_snapshots_only(answers)]
    if _aof_begins(answers):
        return [_aof_unfinished(answers)]
    return [_fsync(answers, policy), _fsync_pauses(answers)]


def _hidden(answers: Answers) -> Finding:
    """CONFIG is refused: INFO may still tell enough."""
    aof = answers.info.get("aof_enabled")
    if aof == "0":
        since_s = max(0.0, time.time() - answers.number("rdb_last_save_time"))
        changes = answers.number("rdb_changes_since_last_save")
        return Finding(
            name="no-aof",
            level="loss",
            sentence="can lose everything since the last snapshot, or everything if there is none: INFO "
            "says aof_enabled:0",
            when=("kill-engine", "power-loss"),
            window=f"now {changes} changes, the last snapshot being {since_s:.0f} s old; save points cannot be read",
            setting="appendonly no",
            procedure=(
                "the engine refuses CONFIG; on a managed service, switch the append-only file on in its console, and "
                "ask the provider whether existing data is carried over",
                *AOF_ON,
            ),
            source=promise("redis", "rdb", "kill-engine").source,
        )
    known = "the append-only file is on" if aof == "1" else "INFO does not tell either"
    return Finding(
        name="settings-hidden",
        level="cannot-tell",
        sentence=f"cannot tell what is lost: the engine refuses CONFIG GET ({answers.refused}); {known}, but not how "
        "often it is fsynced",
        procedure=(
            "allow it for this user: ACL SETUSER <user> +config|get +info (Redis 7; before: +config)",
            "on a managed service, read appendonly, appendfsync and maxmemory-policy in its console",
        ),
    )


def _without_persistence(answers: Answers) -> Finding:
    given = what_can_be_lost("redis", "none")[0]
    found = loss(
        given,
        name="no-persistence",
        window="everything",
        window_s=None,
        setting='appendonly no, save ""',
        procedure=AOF_ON,
    )
    if answers.number("connected_slaves"):
        worse = f"{found.sentence}; its replicas then copy the emptiness"
        return msgspec.structs.replace(found, sentence=worse)
    return found


def _snapshots_only(answers: Answers) -> Finding:
    given = what_can_be_lost("redis", "rdb")[0]
    bound_s = save_window_s((answers.config or {}).get("save", ""))
    since_s = max(0.0, time.time() - answers.number("rdb_last_save_time"))
    changes = answers.number("rdb_changes_since_last_save")
    bound = "no bound, when there are few writes" if bound_s is None else f"up to {bound_s:.0f} s"
    return loss(
        given,
        name="snapshots-only",
        window=f"{bound}; now {changes} changes, the last snapshot being {since_s:.0f} s old",
        window_s=bound_s,
        setting=f"appendonly no, save {(answers.config or {}).get('save')}",
        procedure=AOF_ON,
    )


def save_window_s(save: str) -> float | None:
    """The longest that a single write waits for a snapshot; None if one write alone never causes one."""
    numbers = [int(part) for part in save.split() if part.isdigit()]
    points = list(zip(numbers[::2], numbers[1::2], strict=False))
    waits = [seconds for seconds, changes in points if changes <= 1]
    return float(min(waits)) if waits else None


def _aof_begins(answers: Answers) -> bool:
    """As the store has it: switched on, and the first rewrite has not ended well yet."""
    info = answers.info
    return info.get("aof_base_size") == "0" and (
        info.get("aof_rewrite_in_progress") == "1"
        or info.get("aof_rewrite_scheduled") == "1"
        or info.get("aof_last_bgrewrite_status") == "err"
    )


def _aof_unfinished(answers: Answers) -> Finding:
    failed = answers.info.get("aof_last_bgrewrite_status") == "err"
    state = "has failed" if failed else "has not ended"
    return Finding(
        name="aof-not-begun",
        level="loss",
        sentence=f"can lose everything since the last snapshot: the append-only file was switched on, and its first "
        f"rewrite {state}",
        when=("kill-engine", "power-loss"),
        window="since the last snapshot, until the rewrite has ended",
        setting=f"aof_rewrite_in_progress:{answers.info.get('aof_rewrite_in_progress')}, "
        f"aof_last_bgrewrite_status:{answers.info.get('aof_last_bgrewrite_status')}",
        procedure=(
            *(("find out why in the engine's log (disk full?), then: BGREWRITEAOF",) if failed else ()),
            "wait until INFO persistence says aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok",
            "do not restart the engine before that",
        ),
        source=promise("redis", "rdb", "policy-change").source,
    )


def _fsync(answers: Answers, policy: str) -> Finding | None:
    losses = what_can_be_lost("redis", policy)
    if not losses:
        return None
    given = losses[0]
    waits = _waitaof_step(answers) if policy in ("aof-everysec", "mixed") else ()
    return loss(
        given,
        name=f"fsync-{(answers.config or {}).get('appendfsync')}",
        window=f"about {KERNEL_WRITE_BACK_S:g} s, as the kernel pleases"
        if policy == "aof-no"
        else "up to 2 s",
        window_s=KERNEL_WRITE_BACK_S if policy == "aof-no" else given.window_s,
        setting=f"appendonly yes, appendfsync {(answers.config or {}).get('appendfsync')}",
        procedure=(*FSYNC_ALWAYS, *waits),
    )


def _waitaof_step(answers: Answers) -> tuple[str, ...]:
    version = tuple(int(part) for part in answers.version.split(".") if part.isdigit())
    has = answers.engine == "valkey" or version >= (7, 2)
    if not has or answers.version in WAITS_TOO_EARLY[answers.engine]:
        return ()
    return (
        "or leave it and wait per write: open_store(url, durability='fsynced') uses WAITAOF, after testing "
        "at open that "
        "it really waits",
    )


def _fsync_pauses(answers: Answers) -> Finding | None:
    config = answers.config or {}
    if config.get("no-appendfsync-on-rewrite") != "yes" or config.get("appendfsync") == "no":
        return None
    return Finding(
        name="fsync-pauses",
        level="loss",
        sentence="can lose what was acknowledged while a snapshot or a rewrite ran: nothing is fsynced "
        "meanwhile, not even "
        "with appendfsync always",
        when=("power-loss",),
        window=f"as long as the child runs, plus about {KERNEL_WRITE_BACK_S:g} s; the last rewrite took "
        f"{max(0, answers.number('aof_last_rewrite_time_sec'))} s",
        setting="no-appendfsync-on-rewrite yes",
        procedure=(
            "CONFIG SET no-appendfsync-on-rewrite no",
            "make it last: CONFIG REWRITE, or in redis.conf",
        ),
        source="redis.conf, no-appendfsync-on-rewrite",
    )


def _snapshots_fail(answers: Answers) -> Finding | None:
    if answers.info.get("rdb_last_bgsave_status", "ok") == "ok" or answers.policy not in ("rdb", None):
        return None
    return Finding(
        name="snapshots-fail",
        level="loss",
        sentence="can lose everything since the last snapshot that worked: the last BGSAVE failed",
        when=("kill-engine", "power-loss"),
        window="growing until a snapshot works again",
        setting="rdb_last_bgsave_status:err, stop-writes-on-bgsave-error "
        + (answers.config or {}).get("stop-writes-on-bgsave-error", "unknown"),
        procedure=(
            "find the reason in the engine's log (disk full, fork refused), mend it",
            "BGSAVE, and look again",
        ),
    )


# ---- everything else


def _eviction(answers: Answers) -> Finding | None:
    eviction = (answers.config or {}).get("maxmemory-policy") or answers.info.get("maxmemory_policy")
    if eviction in (None, "noeviction"):
        return None
    limit = answers.number("maxmemory")
    given = promise("redis", "none", "evict")
    keys = "sessions with a time to live" if eviction.startswith("volatile") else "any session"
    steps = ("CONFIG SET maxmemory-policy noeviction (writes are then refused, loudly, when memory is full)",)
    return Finding(
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


def _replicas(answers: Answers) -> Finding | None:
    if not answers.number("connected_slaves"):
        return None
    given = promise("redis", "none", "failover")
    needed, lag_s = answers.number("min-replicas-to-write"), answers.number("min-replicas-max-lag")
    bounded = needed > 0 and lag_s > 0
    hidden = answers.config is None
    return Finding(
        name="failover",
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=("failover",),
        window=f"up to {lag_s} s" if bounded else "settings hidden" if hidden else "no bound",
        window_s=float(lag_s) if bounded else None,
        setting=f"{answers.number('connected_slaves')} replicas, min-replicas-to-write {needed}",
        procedure=(
            "open_store(url, replicas=1): each append then waits (WAIT) until a replica has it",
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, so that a primary cut off from "
            "its replicas "
            "stops taking writes; then CONFIG REWRITE",
        ),
        source=given.source,
    )


def _early_waitaof(answers: Answers) -> Finding | None:
    if answers.version not in WAITS_TOO_EARLY[answers.engine]:
        return None
    return Finding(
        name="waitaof-too-early",
        level="note",
        sentence=f"WAITAOF of {answers.engine} {answers.version} answers before the fsync: do not rely on it",
        procedure=("use appendfsync always, or another release",),
        source="redis/redis pull request 13793; measured",
    )


def _role(answers: Answers) -> Finding | None:
    mode = answers.info.get("redis_mode") or answers.info.get("server_mode")
    if mode == "sentinel":
        return Finding(
            name="is-a-sentinel",
            level="cannot-tell",
            sentence="cannot tell what is lost: this is a Sentinel, which keeps no data",
            procedure=("ask it with SENTINEL GET-MASTER-ADDR-BY-NAME <name>, and examine the primary",),
        )
    if mode == "cluster" and not answers.is_replica:
        return Finding(
            name="one-node-of-a-cluster",
            level="note",
            sentence="this is one node of a cluster; the others have settings of their own",
            procedure=("examine each primary that CLUSTER NODES names",),
        )
    if not answers.is_replica:
        return None
    return Finding(
        name="is-a-replica",
        level="cannot-tell",
        sentence="cannot tell what is lost: this is a replica, and writes are acknowledged by its primary",
        procedure=(
            f"examine the primary: {answers.info.get('master_host')}:{answers.info.get('master_port')}",
        ),
    )


def _disk(answers: Answers) -> Finding | None:
    folder = (answers.config or {}).get("dir", "")
    if answers.policy == "none":
        return None
    names = ("redis", "valkey")
    mounts = disk.mounts_of_process(answers.number("process_id"), folder, names) if folder else None
    return disk.look_at(folder, mounts, ON_A_DISK)


def _not_persisted(answers: Answers) -> Finding | None:
    """What runs is not always what is configured."""
    if answers.policy is None or not answers.policy.startswith(("aof", "mixed")):
        return None
    file = answers.info.get("config_file", "")
    return Finding(
        name="running-settings",
        level="note",
        sentence="these are the settings of the running server"
        + ("; it has no configuration file" if not file else "")
        + ": after a restart those of its configuration or command line hold",
        procedure=("compare them with the configuration; CONFIG REWRITE writes them there",),
    )
