"""What engines of several servers promise, where it is not what each of their servers promises: see `guarantees`."""

from __future__ import annotations

from dataclasses import replace

from recollect.promise_rules import ALL, LOUD, TAIL, Rule

_CLUSTER_SPECIFICATION = (
    "Redis cluster specification: write safety; Redis documentation, Scale with Redis Cluster"
)
_NEWER_COPY = (
    "`replicas` of every copy that may be promoted, or `min-replicas-to-write`, which only bounds it"
)
# A copy that had not received everything: late or lost, but a store that does not find it is not excused. What the old
# primary showed and did not pass on is written again by whoever retries, and then comes later than it did there.
_OLDER_COPY = ("silent-reset", "hole", *TAIL, "own-write-missing", "stale-read", "reorder")
_UNRECEIVED = Rule(
    ("node-kill", "pause", "failover", "promoted-behind"),
    _OLDER_COPY,
    None,
    "the writes that the promoted replica had not received: replication is asynchronous",
    f"{_CLUSTER_SPECIFICATION}; Redis documentation, High availability with Sentinel",
    _NEWER_COPY,
)
# By agreement: clients are sent to the successor when it has everything. Nothing excuses a loss then.
_FORCED = ("force", "takeover")
_BY_AGREEMENT = Rule(
    ("failover",),
    (),
    0.0,
    "nothing that was acknowledged: the primary stops taking writes until its replica has them all",
    "Redis cluster specification: manual failover; Redis documentation, CLUSTER FAILOVER",
    variants=("",),
)
_EMPTY_PRIMARY = Rule(
    ("kill-restart",),
    (*ALL, *LOUD),
    None,
    "everything on the node: a primary without an append-only file restarts with an old snapshot or nothing, and its "
    "replica becomes a copy of that",
    "Redis documentation, Replication: safety of replication when master has persistence turned off",
    "`appendonly yes` on every node; or no restart before a replica has taken over",
)
_SENTINEL_EXAMPLE = (
    "Redis documentation, High availability with Sentinel: example 2, basic setup with three boxes"
)
_CUT_OFF = (
    "what a primary acknowledges while it is cut off from the majority, for as long as the node timeout"
)
_NOT_TOLD = "what a primary acknowledges after the sentinels have elected another, until one of them tells it"
OF_ENGINE: dict[str, tuple[Rule, ...]] = {
    "redis-sentinel": (
        _UNRECEIVED,
        Rule(
            ("isolate-primary", "isolate-sentinels", "two-primaries"),
            _OLDER_COPY,
            None,
            _NOT_TOLD,
            _SENTINEL_EXAMPLE,
            _NEWER_COPY,
        ),
    ),
    "redis-cluster": (
        Rule(
            ("failover",),
            _UNRECEIVED.allows,
            None,
            _UNRECEIVED.sentence,
            "Redis documentation, CLUSTER FAILOVER: the FORCE and TAKEOVER options",
            f"CLUSTER FAILOVER without an option; {_NEWER_COPY}",
            variants=_FORCED,
        ),
        _BY_AGREEMENT,
        _UNRECEIVED,
        Rule(("isolate-primary",), _OLDER_COPY, None, _CUT_OFF, _CLUSTER_SPECIFICATION, _NEWER_COPY),
        Rule(
            ("lose-shard",),
            LOUD,
            None,
            "deleted files are gone; the loss must reach the caller as an error, never as an empty memory",
            "no engine documents that it notices a deleted folder",
            "a backup of each shard; a store that knows which shards it had",
        ),
    ),
}
"""For every policy of an engine."""

_UNRECEIVED_COMMITS = "the commits that the promoted standby had not received"
_PG_SYNCHRONOUS = "PostgreSQL documentation, 27.2.8 Synchronous Replication"
_PG_FENCING = (
    "PostgreSQL documentation, 27.3 Failover: informing the old primary that it is no longer the primary"
)
_FENCED = "fence the old primary before another is promoted; connect to the newest timeline; `FIRST 2` of two standbys"
# A commit that waits for standbys and is told to stop waiting stays, and readers see it; after a failover it is gone.
_SEEN_UNREPLICATED = Rule(
    ("pause", "isolate-primary", "promoted-behind", "two-primaries", "failover"),
    ("non-monotonic-read", "reorder"),
    None,
    "nothing that was acknowledged; a commit whose wait for standbys was cut short is seen until another takes over",
    f"{_PG_SYNCHRONOUS}: planning for high availability; syncrep.c SyncRepWaitForLSN",
    "read again after a failover",
)
_SWITCHED_OVER = Rule(
    ("failover",),
    (),
    0.0,
    "nothing that was acknowledged: a primary that is stopped sends the rest, and the standby that has it takes over",
    "PostgreSQL documentation, 27.3 Failover; walsender.c WalSndDone",
    variants=("",),
)
MIN_REPLICAS = {"min-replicas-lag-10": 10, "min-replicas-lag-1": 1}
"""Policies without persistence and with `min-replicas-to-write 1`, and their `min-replicas-max-lag` in seconds."""


def _until_silent(lag_s: int, faults: tuple[str, ...], source: str) -> Rule:
    return Rule(
        faults,
        _OLDER_COPY,
        None,
        f"what a primary acknowledges until it has heard of no replica for {lag_s} s (`min-replicas-max-lag {lag_s}`)",
        f"{source}; redis.conf, min-replicas-max-lag",
        "`replicas` of every copy that may be promoted",
    )


OF_POLICY: dict[tuple[str, str], tuple[Rule, ...]] = {
    (group, policy): (_EMPTY_PRIMARY,)
    for group in ("redis-cluster", "redis-sentinel")
    for policy in ("none", "rdb", *MIN_REPLICAS)
}
for _policy, _lag_s in MIN_REPLICAS.items():
    OF_POLICY["redis-cluster", _policy] += (
        _until_silent(_lag_s, ("isolate-primary",), _CLUSTER_SPECIFICATION),
    )
    OF_POLICY["redis-sentinel", _policy] += (
        _until_silent(_lag_s, ("isolate-primary", "two-primaries"), _SENTINEL_EXAMPLE),
    )
OF_POLICY["postgres-ha", "asynchronous"] = (
    Rule(
        ("failover",),
        _OLDER_COPY,
        None,
        f"{_UNRECEIVED_COMMITS} when it was promoted beside a primary that ran",
        _PG_FENCING,
        "stop the primary first: it sends the rest on its way out",
        variants=_FORCED,
    ),
    _SWITCHED_OVER,
    Rule(
        ("node-kill", "pause", "isolate-primary", "promoted-behind"),
        _OLDER_COPY,
        None,
        f"{_UNRECEIVED_COMMITS}: replication is asynchronous",
        _PG_SYNCHRONOUS,
        "`synchronous_standby_names = 'FIRST 2 (*)'` of two standbys, or `ANY 1` and promotion of the one that has it",
    ),
    Rule(
        ("two-primaries",),
        _OLDER_COPY,
        None,
        "what the old primary acknowledges beside the new one",
        _PG_FENCING,
        _FENCED,
    ),
)
OF_POLICY["postgres-ha", "any-1"] = (
    Rule(
        ("promoted-behind",),
        _OLDER_COPY,
        None,
        f"{_UNRECEIVED_COMMITS}: one of two acknowledges, and the other may be promoted",
        f"{_PG_SYNCHRONOUS}: multiple synchronous standbys",
        "promote the standby that has received most; `FIRST 2` of two standbys",
    ),
    Rule(
        ("failover",),
        _OLDER_COPY,
        None,
        "what the old primary acknowledges beside the new one until it is stopped, while the other standby follows it",
        _PG_FENCING,
        "stop the primary first: it sends the rest on its way out",
        variants=_FORCED,
    ),
    Rule(
        ("two-primaries",),
        _OLDER_COPY,
        None,
        "what the old primary acknowledges beside the new one, as long as the other standby still follows it",
        _PG_FENCING,
        _FENCED,
    ),
    _SEEN_UNREPLICATED,
)
OF_POLICY["postgres-ha", "first-2"] = (_SEEN_UNREPLICATED,)

_PATRONI = "Patroni documentation, Replication modes"
_PATRONI_SWITCHED_OVER = replace(
    _SWITCHED_OVER, source="Patroni documentation, Patroni REST API: switchover and failover endpoints"
)
OF_POLICY["patroni", "asynchronous"] = (
    _PATRONI_SWITCHED_OVER,
    Rule(
        ("node-kill", "pause", "isolate-primary", "promoted-behind", "restart-all"),
        _OLDER_COPY,
        None,
        f"{_UNRECEIVED_COMMITS}, up to `maximum_lag_on_failover` and what was written since the last look",
        f"{_PATRONI}: asynchronous mode durability",
        "`synchronous_mode: true` or `quorum`",
    ),
)
for _waits in ("synchronous", "quorum"):
    OF_POLICY["patroni", _waits] = (_SEEN_UNREPLICATED,)
