"""Faults of engines of several servers: what each is on each of them, and the table.

Redis and Valkey find a successor by themselves (`cluster`); a PostgreSQL standby is promoted by somebody (`standbys`),
or by Patroni (`patroni`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recollect.guarantees import MADE_OF
from recollect.verify.engines.group import ServerGroup
from recollect.verify.running.faults import cluster, patroni, standbys
from recollect.verify.running.faults.fault import AT_ONCE, ONE_BEHIND, UNFENCED, Fault, Injection, ours_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario

CLUSTER, SENTINEL, HA, PATRONI = "redis-cluster", "redis-sentinel", "postgres-ha", "patroni"


class RestartAll(Injection):
    """All servers die at once and come back one by one, in any order."""

    def strike(self) -> None:
        run, engine = self.run, self.run.engine
        assert isinstance(engine, ServerGroup), "the obstacle keeps the others out"
        order = list(engine.servers)
        run.rng.shuffle(order)
        with run.striking("restart-all"):
            run.kill_engine()
            run.start_engine(lambda: engine.start_one_by_one(order))


_HOW: Mapping[str, Mapping[str, type[Injection]]] = {
    "node-kill": {
        CLUSTER: cluster.NodeKill,
        SENTINEL: cluster.NodeKill,
        HA: standbys.PrimaryKilled,
        PATRONI: patroni.HostLost,
    },
    "kill-restart": {
        CLUSTER: cluster.KillRestart,
        SENTINEL: cluster.KillRestart,
        HA: standbys.PrimaryKilledAndStarted,
        PATRONI: patroni.ServerKilled,
    },
    "pause": {
        CLUSTER: cluster.NodePause,
        SENTINEL: cluster.NodePause,
        HA: standbys.PrimaryPaused,
        PATRONI: patroni.HostPaused,
    },
    "failover": {
        CLUSTER: cluster.ClusterFailover,
        SENTINEL: cluster.ClusterFailover,
        HA: standbys.SwitchedOver,
        PATRONI: patroni.PatroniSwitchedOver,
    },
    "isolate-primary": {
        CLUSTER: cluster.IsolatePrimary,
        SENTINEL: cluster.IsolatePrimary,
        HA: standbys.PrimaryIsolated,
        PATRONI: patroni.LeaderIsolated,
    },
    "isolate-sentinels": {SENTINEL: cluster.IsolatePrimary},
    "promoted-behind": {
        CLUSTER: cluster.BehindElected,
        SENTINEL: cluster.BehindElected,
        HA: standbys.BehindPromoted,
        PATRONI: patroni.BehindChosen,
    },
    "two-primaries": {SENTINEL: cluster.OldPrimaryBack, HA: standbys.TwoPrimaries},
    "restart-all": {CLUSTER: RestartAll, SENTINEL: RestartAll, HA: RestartAll, PATRONI: RestartAll},
    "reshard": {CLUSTER: cluster.Reshard},
    "lose-shard": {CLUSTER: cluster.LoseShard},
}
"""By fault and engine."""

_NOT_THERE = {
    ("promoted-behind", ONE_BEHIND, PATRONI): "Patroni promotes the standby that has received most",
    ("two-primaries", "", PATRONI): "only who has the lock is a primary: see isolate-primary and pause",
    (
        "two-primaries",
        UNFENCED,
        PATRONI,
    ): "Patroni stops a primary that has lost the lock: see isolate-primary",
    (
        "two-primaries",
        UNFENCED,
        SENTINEL,
    ): "nobody stops a primary that sentinels replace: see isolate-sentinels",
}
"""Variants that one of the engines cannot have, and why."""

_SERVERS = "one server has no other to take over: see kill-engine"
_SLOTS = "only a cluster has several primaries"


def of_group(fault: str, run: FaultedRun) -> Injection:
    """The fault as it happens to the engine of this run."""
    return _HOW[fault][run.scenario.engine_kind](run)


def _inject(fault: str) -> Callable[[FaultedRun], Injection]:
    return lambda run: of_group(fault, run)


def _only(fault: str, why: str) -> Callable[[Scenario], str | None]:
    def obstacle(scenario: Scenario) -> str | None:
        if (reason := ours_only(scenario)) is not None:
            return reason
        if scenario.engine_kind not in MADE_OF:
            return _SERVERS
        reason = _NOT_THERE.get((fault, scenario.variant, scenario.engine_kind))
        return reason or (None if scenario.engine_kind in _HOW[fault] else why)

    return obstacle


def _row(
    fault: str, verifies: str, does_not_verify: str, why: str, variants: tuple[str, ...] = ("",)
) -> Fault:
    return Fault(
        fault,
        _inject(fault),
        verifies=verifies,
        does_not_verify=does_not_verify,
        obstacle=_only(fault, why),
        variants=variants,
        usual_variants=len(variants),
        on_groups=variants,
    )


GROUP_FAULTS = (
    _row(
        "node-kill",
        "a primary dies and another server takes over: what was acknowledged is there, and the store finds the new"
        " primary by itself",
        "a lost host: the kernel still delivers what a killed process had sent to its replica",
        _SERVERS,
    ),
    _row(
        "kill-restart",
        "a primary dies and is started again before its replica takes over: what was acknowledged is there, or its loss"
        " is an error to the caller",
        "power loss: what was handed to the kernel survives a killed process",
        _SERVERS,
    ),
    _row(
        "isolate-primary",
        "a primary that is cut off from the other servers, but not from its clients, does not acknowledge what is lost"
        " when it comes back",
        "a node timeout longer than the second that it has here: the default is fifteen",
        _SERVERS,
    ),
    _row(
        "isolate-sentinels",
        "a primary that the sentinels cannot reach, while its clients and replicas can, does not acknowledge what is"
        " lost when they have elected another",
        "the ten seconds and more that a primary goes on in practice: the sentinels are heard again after a moment",
        "only Sentinel has sentinels",
    ),
    _row(
        "promoted-behind",
        "a copy that lacks the last writes takes over (a lost host, a slow network): what was acknowledged is there, or"
        " its loss is told, and no sequence is given twice",
        "a copy that is behind by hours: see restore",
        _SERVERS,
        variants=("", ONE_BEHIND),
    ),
    _row(
        "two-primaries",
        "while an old primary answers beside the new one (it came back, or nobody stopped it), a store uses the newer",
        "a store that stays connected to the old one: what it is told there is lost unless commits wait for standbys",
        "its nodes agree on one primary for each slot: see isolate-primary",
        variants=("", UNFENCED),
    ),
    _row(
        "restart-all",
        "all servers die at once and come back one by one, in any order: what was acknowledged is there, and they come"
        " together again",
        "power loss: what was handed to the kernel survives a killed process",
        _SERVERS,
    ),
    _row(
        "reshard",
        "while slots move to another primary, key by key or in one step (Valkey's CLUSTER MIGRATESLOTS), nothing is"
        " lost, doubled or hidden",
        "a move that is given up half-way",
        _SLOTS,
        variants=("", AT_ONCE),
    ),
    _row(
        "lose-shard",
        "a primary and its replica that come back empty are noticed: an error is raised instead of an empty memory, and"
        " the other shards go on",
        "that the data comes back: it is gone, and only a backup has it",
        _SLOTS,
    ),
)
