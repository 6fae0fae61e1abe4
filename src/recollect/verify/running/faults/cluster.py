"""What happens to an engine of several servers: one of them dies, freezes, is cut off, is replaced, loses its disk.

The victim is the primary that holds the most, so that sessions of the run are struck. Clients work on while the servers
find out: who serves is for the store to learn.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from recollect.verify.engines.redis_cluster import ClusterNode, RedisClusterEngine
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine, SentinelServer
from recollect.verify.host.errors import EngineError
from recollect.verify.running.faults.fault import AT_ONCE, ONE_BEHIND, Injection, Witnessed
from recollect.verify.running.faults.faulted_run import FaultedRun

CHANGE_TIMEOUT_S = 30.0
_STEP_S = 0.05
_SLOTS_MOVED = 6
REPLIES_PER_LOSS = 8

Group = RedisClusterEngine | RedisSentinelEngine


def group_of(run: FaultedRun) -> Group:
    engine = run.engine
    assert isinstance(engine, RedisClusterEngine | RedisSentinelEngine), "the obstacle keeps the others out"
    return engine


def victim_of(run: FaultedRun) -> ClusterNode | SentinelServer:
    """The primary with the most keys."""
    primaries: list[ClusterNode | SentinelServer] = [*group_of(run).primaries()]
    return max(primaries, key=lambda node: int(str(node.ask("DBSIZE"))))


def until(run: FaultedRun, condition: Callable[[], bool], otherwise: str) -> None:
    """Lets the clients work until the condition holds; if it never does, the run shows nothing."""
    end = time.monotonic() + CHANGE_TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            run.give_up(f"{otherwise} within {CHANGE_TIMEOUT_S:g} s")
        run.go_on(_STEP_S)


def await_successor(run: FaultedRun, victim: ClusterNode | SentinelServer) -> None:
    group = group_of(run)
    until(run, lambda: group.has_successor(victim), "no replica took over")  # type: ignore[arg-type]


def await_whole(run: FaultedRun) -> None:
    until(run, group_of(run).is_ready, "the servers did not come together again")


def start_again(run: FaultedRun, *servers: ClusterNode | SentinelServer) -> None:
    """On their own data; the engine as a whole never stopped."""
    try:
        for server in servers:
            server.start()
    except EngineError as refusal:
        run.give_up(f"a server did not start again: {refusal}")
    await_whole(run)


class NodeKill(Injection):
    def strike(self) -> None:
        run, victim = self.run, victim_of(self.run)
        with run.striking("node-kill"):
            victim.kill()
            await_successor(run, victim)
            run.go_on(run.scenario.before_s)
            start_again(run, victim)


class KillRestart(Injection):
    """A supervisor starts the dead primary again at once, before the others have noticed."""

    def strike(self) -> None:
        run, victim = self.run, victim_of(self.run)
        with run.striking("kill-restart"):
            victim.kill()
            start_again(run, victim)


class NodePause(Injection):
    """The primary freezes for longer than the others wait, and wakes up when it has a successor."""

    def strike(self) -> None:
        run, victim = self.run, victim_of(self.run)
        with run.striking("pause"):
            victim.pause()
            try:
                await_successor(run, victim)
                run.go_on(run.scenario.before_s)
            finally:
                victim.resume()
            await_whole(run)


class BetweenProxies(Injection):
    """There are proxies between the servers, so that some links can be cut and others not."""

    def record(self) -> None:
        group_of(self.run).put_proxies_between()


class RepliesLost(BetweenProxies):
    """Those to clients, from any server; the servers hear each other as before."""

    def strike(self) -> None:
        run, engine = self.run, group_of(self.run)
        with run.striking("lost-ack", f"about one reply in {REPLIES_PER_LOSS} is lost"):
            engine.lose_replies(REPLIES_PER_LOSS, run.rng)
            run.go_on(run.scenario.before_s)
            engine.lose_replies(0, run.rng)


class IsolatePrimary(BetweenProxies):
    """From the other servers; or from the sentinels alone, while the replicas follow it."""

    def strike(self) -> None:
        run, victim, engine = self.run, victim_of(self.run), group_of(self.run)
        with run.striking(run.scenario.fault):
            if isinstance(engine, RedisSentinelEngine):
                assert isinstance(victim, SentinelServer)
                engine.isolate(victim, replicas=run.scenario.fault == "isolate-primary")
            else:
                assert isinstance(victim, ClusterNode)
                engine.isolate(victim)
            try:
                await_successor(run, victim)
                run.go_on(run.scenario.before_s)
            finally:
                engine.heal()
            await_whole(run)


def kill_each(servers: Sequence[ClusterNode | SentinelServer]) -> None:
    for server in servers:
        server.kill()


class BehindElected(BetweenProxies):
    """For a while nothing reaches the replicas; then the primary's host is gone, with what was on its way. Or only one
    replica is kept from receiving, and the other goes with the primary."""

    def record(self) -> None:
        engine = self.run.engine
        if self.run.scenario.variant == ONE_BEHIND and isinstance(engine, RedisClusterEngine):
            engine.add_replicas()
        super().record()

    def strike(self) -> None:
        run, victim, engine = self.run, victim_of(self.run), group_of(self.run)
        copies = engine.replicas_of(victim)  # type: ignore[arg-type]
        behind = copies[:1] if run.scenario.variant == ONE_BEHIND else copies
        gone = [victim, *copies[len(behind) :]]
        behind_s = run.scenario.before_s
        with run.striking(
            "promoted-behind", f"{len(behind)} of {len(copies)} replicas {behind_s:g} s behind"
        ):
            engine.hold_back(victim, *behind)  # type: ignore[arg-type]
            run.go_on(behind_s)
            run.kill_engine(lambda: kill_each(gone))
            engine.lose(victim)  # type: ignore[arg-type]
            await_successor(run, victim)
            run.start_engine(lambda: engine.endpoint)
            start_again(run, *gone)


class OldPrimaryBack(Injection):
    """Sentinels leave a server that calls itself a primary alone for eight seconds: until then there are two."""

    def strike(self) -> None:
        run, victim = self.run, victim_of(self.run)
        with run.striking("two-primaries"):
            run.kill_engine(victim.kill)
            await_successor(run, victim)
            run.start_engine(lambda: group_of(run).endpoint)
            victim.start()
            run.clients.kill_all()
            run.clients.start_missing()
            await_whole(run)


class ClusterFailover(Injection):
    """By hand, as for maintenance: the replica asks its primary to stop, or does not ask."""

    def strike(self) -> None:
        run, victim, engine = self.run, victim_of(self.run), self.run.engine
        if not isinstance(engine, RedisClusterEngine) or not isinstance(victim, ClusterNode):
            run.skip("sentinels decide themselves when to fail over: see node-kill")
        [replica] = engine.replicas_of(victim)
        how = run.scenario.variant
        with run.striking("failover", how):
            engine.ask_to_fail_over(replica, how)
            await_successor(run, victim)
            await_whole(run)


class Reshard(Injection):
    """Slots that hold something move to another primary, key by key, as redis-cli does it, or as Valkey 9 does."""

    def strike(self) -> None:
        run, victim, engine = self.run, victim_of(self.run), self.run.engine
        assert isinstance(engine, RedisClusterEngine)
        assert isinstance(victim, ClusterNode)
        at_once = run.scenario.variant == AT_ONCE
        if at_once and not engine.moves_slots_itself:
            run.skip(
                f"{engine.product} {engine.version} moves slots key by key; Valkey 9 has CLUSTER MIGRATESLOTS"
            )
        target = next(node for node in engine.primaries() if node is not victim)
        used = [
            slot for slot in engine.slots_of(victim) if victim.ask("CLUSTER", "COUNTKEYSINSLOT", str(slot))
        ]
        run.rng.shuffle(used)
        with run.striking("reshard", run.scenario.variant):
            for slot in used[:_SLOTS_MOVED]:
                if at_once:
                    engine.migrate_slot(slot, victim, target)
                    until(run, functools.partial(engine.owns, target, slot), f"slot {slot} did not move")
                    continue
                for _ in engine.move_slot(slot, victim, target):
                    run.go_on(_STEP_S)
            await_whole(run)
        run.remark(f"{len(used[:_SLOTS_MOVED])} slots moved while clients were at work")


class LoseShard(Witnessed):
    """A primary and its replica come back with new disks; they still know the cluster."""

    def strike(self) -> None:
        run, victim, engine = self.run, victim_of(self.run), self.run.engine
        assert isinstance(engine, RedisClusterEngine)
        assert isinstance(victim, ClusterNode)
        lost = [victim, *engine.replicas_of(victim)]
        with run.striking("lose-shard"):
            for node in reversed(lost):
                node.kill()
                node.empty()
            start_again(run, *lost)
            run.restart_clients()
