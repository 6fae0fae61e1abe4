"""A replica that lags behind, or takes over."""

from __future__ import annotations

from dataclasses import replace

from recollect.guarantees import MADE_OF
from recollect.verify.engines import Replica, Replicated
from recollect.verify.running.faults.fault import FORCE, TAKEOVER, Fault, Injection, servers_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.faults.groups import of_group
from recollect.verify.running.scenario import Scenario


def _obstacle(scenario: Scenario) -> str | None:
    if scenario.engine_name == "chroma":
        return "Chroma has no replicas"
    return servers_only(scenario)


class _OnReplica(Injection):
    """The engine has a replica, and clients know of it."""

    replica: Replica

    def attach(self) -> None:
        if not isinstance(self.run.engine, Replicated):
            self.run.skip("this engine cannot have a replica")
        self.replica = self.run.engine.replica()
        self.replica.wait_caught_up()
        url = self.replica.endpoint.url
        self.run.clients.show(lambda endpoint: replace(endpoint, replicas=(url,)))


def _failover(run: FaultedRun) -> Injection:
    return of_group("failover", run) if run.scenario.engine_kind in MADE_OF else Failover(run)


def _failover_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant and scenario.engine_kind not in MADE_OF:
        return f"{scenario.variant}: a way in which only a cluster fails over"
    return _obstacle(scenario)


class ReplicaLag(_OnReplica):
    def strike(self) -> None:
        with self.run.striking("replica-lag"):
            self.replica.pause_replay()
            self.run.go_on(self.run.scenario.before_s)
            self.replica.resume_replay()
        self.replica.wait_caught_up()


class Failover(_OnReplica):
    """The replica has everything and stops following, clients go on writing, the primary dies, the replica takes over.

    What the primary alone acknowledged is exactly what was written in between: nothing is left to the race between
    a stream and a kill. A store that waits for the replica acknowledges nothing in that time.
    """

    def strike(self) -> None:
        run, behind_s = self.run, self.run.scenario.before_s
        run.settle(quiet_s=0.0)
        self.replica.wait_caught_up()
        with run.striking("failover", f"the replica is {behind_s:g} s behind"):
            self.replica.pause_replay()
            run.go_on(behind_s)
            run.kill_engine()
            run.start_engine(self.replica.promote)
            run.clients.kill_all()  # nobody waits for the old primary
            run.clients.start_missing()


REPLICATION_FAULTS = (
    Fault(
        "replica-lag",
        ReplicaLag,
        verifies="reads from a replica that is behind do not forget what was acknowledged",
        does_not_verify="a replica that never catches up again",
        obstacle=_obstacle,
    ),
    Fault(
        "failover",
        _failover,
        verifies="what the primary acknowledged while its replica had stopped following is there after the replica has"
        " taken over; what both had acknowledged must be",
        does_not_verify="the old primary coming back as a second one (split brain)",
        obstacle=_failover_obstacle,
        variants=("", FORCE, TAKEOVER),
        on_groups=("", FORCE, TAKEOVER),
    ),
)
