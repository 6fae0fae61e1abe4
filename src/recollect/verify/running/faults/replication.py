"""A second copy that is behind, or takes over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.verify.engines import Replica, Replicated
from recollect.verify.running.faults.fault import Fault, servers_only
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run


def _obstacle(scenario: Scenario) -> str | None:
    if scenario.engine_name == "chroma":
        return "Chroma has no replicas"
    return servers_only(scenario)


def _attach(run: Run) -> None:
    if not isinstance(run.engine, Replicated):
        run.skip("only an engine that runs as a process of this machine can have a replica here")
    run.replica = run.engine.replica()
    run.replica.wait_caught_up()
    run.endpoint = replace(run.endpoint, replicas=(run.replica.endpoint.url,))


def _replica(run: Run) -> Replica:
    assert run.replica is not None
    return run.replica


def _replica_lag(run: Run) -> None:
    with run.striking("replica-lag"):
        _replica(run).pause_replay()
        run.go_on(run.scenario.before_s)
        _replica(run).resume_replay()
    _replica(run).wait_caught_up()


def _failover(run: Run) -> None:
    """The replica has all and stops following, clients go on writing, the primary dies, and the replica takes over.

    What the primary alone acknowledged is exactly what was written in between: nothing is left to the race between
    a stream and a kill. A store that waits for the replica acknowledges nothing in that time.
    """
    behind_s = run.scenario.before_s
    run.settle(quiet_s=0.0)
    _replica(run).wait_caught_up()
    with run.striking("failover", f"the replica is {behind_s:g} s behind"):
        _replica(run).pause_replay()
        run.go_on(behind_s)
        run.kill_engine()
        run.start_engine(_replica(run).promote)
        run.drop_clients()


REPLICATION_FAULTS = (
    Fault(
        "replica-lag",
        _replica_lag,
        verifies="reads from a replica that is behind do not forget what was acknowledged",
        does_not_verify="a replica that never catches up again",
        obstacle=_obstacle,
        attach=_attach,
    ),
    Fault(
        "failover",
        _failover,
        verifies="what the primary acknowledged while its replica had stopped following is there after the replica has"
        " taken over; what is acknowledged by both always is",
        does_not_verify="the old primary coming back as a second one (split brain)",
        obstacle=_obstacle,
        attach=_attach,
    ),
)
