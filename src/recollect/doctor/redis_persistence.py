"""Redis persistence: what a policy can lose, how far back, and how to stop that.

Switching on the append-only file is the one change that can itself lose everything: restarted with a bare
`appendonly yes`, Redis loads an append-only file that is not there, and starts empty. So the order of the steps
matters.
"""

from __future__ import annotations

import time

import msgspec

from recollect.doctor.diagnosis import Symptom, loss
from recollect.doctor.redis_answers import RedisAnswers
from recollect.guarantees import promise, what_can_be_lost

AOF_ON = (
    "on the running server: CONFIG SET appendonly yes",
    "wait until INFO persistence says aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok",
    "only then write it into the configuration: CONFIG REWRITE, or `appendonly yes` in redis.conf; a restart "
    "with a bare `appendonly yes` before that starts EMPTY, without an error",
    "up to 2 s can still be lost then (appendfsync everysec): CONFIG SET appendfsync always stops that, too",
)
FSYNC_ALWAYS = (
    "CONFIG SET appendfsync always (each acknowledgement then waits for an fsync)",
    "make it last: CONFIG REWRITE, or `appendfsync always` in redis.conf",
)
KERNEL_WRITE_BACK_S = 30.0


def persistence(answers: RedisAnswers) -> list[Symptom | None]:
    """Everything that the settings for snapshots and the append-only file can lose."""
    return [*_by_policy(answers), _snapshots_fail(answers)]


def _by_policy(answers: RedisAnswers) -> list[Symptom | None]:
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


def _hidden(answers: RedisAnswers) -> Symptom:
    """CONFIG is refused, but INFO may say enough."""
    aof = answers.info.get("aof_enabled")
    if aof == "0":
        since_s = max(0.0, time.time() - answers.number("rdb_last_save_time"))
        changes = answers.number("rdb_changes_since_last_save")
        return Symptom(
            name="no-aof",
            level="loss",
            sentence="can lose everything since the last snapshot, or everything if there is none: INFO says "
            "aof_enabled:0",
            when=("kill-engine", "power-loss"),
            window=f"now {changes} changes, the last snapshot being {since_s:.0f} s old; save points cannot be read",
            setting="appendonly no",
            procedure=(
                "the engine refuses CONFIG; on a managed service, switch the append-only file on in its "
                "console, and ask the provider whether existing data is carried over",
                *AOF_ON,
            ),
            source=promise("redis", "rdb", "kill-engine").source,
        )
    known = "the append-only file is on" if aof == "1" else "INFO does not say either"
    return Symptom(
        name="settings-hidden",
        level="cannot-tell",
        sentence=f"cannot tell what is lost: the engine refuses CONFIG GET ({answers.refused}); {known}, but not "
        "how often it is fsynced",
        procedure=(
            "allow it for this user: ACL SETUSER <user> +config|get +info (Redis 7; before: +config)",
            "on a managed service, read appendonly, appendfsync and maxmemory-policy in its console",
        ),
    )


def _without_persistence(answers: RedisAnswers) -> Symptom:
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


def _snapshots_only(answers: RedisAnswers) -> Symptom:
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
    """The longest time a single write waits for a snapshot; None if one write alone never causes one."""
    numbers = [int(part) for part in save.split() if part.isdigit()]
    points = list(zip(numbers[::2], numbers[1::2], strict=False))
    waits = [seconds for seconds, changes in points if changes <= 1]
    return float(min(waits)) if waits else None


def _aof_begins(answers: RedisAnswers) -> bool:
    """As in the store: switched on, and the first rewrite has not succeeded yet."""
    info = answers.info
    return info.get("aof_base_size") == "0" and (
        info.get("aof_rewrite_in_progress") == "1"
        or info.get("aof_rewrite_scheduled") == "1"
        or info.get("aof_last_bgrewrite_status") == "err"
    )


def _aof_unfinished(answers: RedisAnswers) -> Symptom:
    failed = answers.info.get("aof_last_bgrewrite_status") == "err"
    state = "has failed" if failed else "has not ended"
    return Symptom(
        name="aof-not-begun",
        level="loss",
        sentence="can lose everything since the last snapshot: the append-only file was switched on, and its "
        f"first rewrite {state}",
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


def _fsync(answers: RedisAnswers, policy: str) -> Symptom | None:
    losses = what_can_be_lost("redis", policy)
    if not losses:
        return None
    given = losses[0]
    waits = _waitaof_step(answers) if policy in ("aof-everysec", "mixed") else ()
    return loss(
        given,
        name=f"fsync-{(answers.config or {}).get('appendfsync')}",
        window=f"about {KERNEL_WRITE_BACK_S:g} s, whenever the kernel writes it back"
        if policy == "aof-no"
        else "up to 2 s",
        window_s=KERNEL_WRITE_BACK_S if policy == "aof-no" else given.window_s,
        setting=f"appendonly yes, appendfsync {(answers.config or {}).get('appendfsync')}",
        procedure=(*FSYNC_ALWAYS, *waits),
    )


def _waitaof_step(answers: RedisAnswers) -> tuple[str, ...]:
    version = tuple(int(part) for part in answers.version.split(".") if part.isdigit())
    has = answers.engine == "valkey" or version >= (7, 2)
    if not has:
        return ()
    return (
        "or leave it and wait per write: open_store(url, durability='fsynced') uses WAITAOF, after testing at "
        "open that it really waits, and watches for the fsync itself where it does not",
    )


def _fsync_pauses(answers: RedisAnswers) -> Symptom | None:
    config = answers.config or {}
    if config.get("no-appendfsync-on-rewrite") != "yes" or config.get("appendfsync") == "no":
        return None
    return Symptom(
        name="fsync-pauses",
        level="loss",
        sentence="can lose what was acknowledged while a snapshot or a rewrite ran: nothing is fsynced "
        "meanwhile, not even with appendfsync always",
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


def _snapshots_fail(answers: RedisAnswers) -> Symptom | None:
    if answers.info.get("rdb_last_bgsave_status", "ok") == "ok" or answers.policy not in ("rdb", None):
        return None
    return Symptom(
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
