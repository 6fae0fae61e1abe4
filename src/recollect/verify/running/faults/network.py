"""A network that delays, cuts, and keeps silent; and an engine whose connections are all taken by others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.verify import providers
from recollect.verify.running.faults.connection_limit import occupied
from recollect.verify.running.faults.fault import Fault, servers_only
from recollect.verify.running.proxy import Proxy

if TYPE_CHECKING:
    from recollect.verify.engines import Endpoint
    from recollect.verify.running.run import Run
    from recollect.verify.running.scenario import Scenario

REPLIES_PER_LOSS = 8
LATENCY_S = (0.01, 0.06)
RESETS = 3
RESET_EVERY_S = 0.04
REFUSED_S = 0.15
PATIENCE_S = 1.0
"""What the target is told to wait at most, so that it gives up while its request is still under way."""
SILENT_S = 0.3
"""Nothing passes at all …"""
FORGOTTEN_S = 1.0
"""… then new connections do, and the old ones are silent for this much longer."""
TAKEN_S = 0.4


def _networked(scenario: Scenario) -> str | None:
    if scenario.engine_name == "sqlite" or scenario.policy == "embedded":
        return "the engine lives inside the target's process: there is no network between them"
    return None


def _limited(scenario: Scenario) -> str | None:
    if providers.parse(scenario.engine)[0] not in ("redis", "postgres"):
        return "the engine has no limit on connections"
    return servers_only(scenario)


def _in_between(run: Run) -> None:
    """Puts a proxy between the clients and the engine, as soon as the engine's address is known."""

    def shown(endpoint: Endpoint) -> Endpoint:
        if run.proxy is None:
            run.proxy = Proxy(endpoint, run.rng)
            run.at_end(run.proxy.close)
        return run.proxy.in_front()

    run.shown = shown


def _impatient(run: Run) -> None:
    _in_between(run)
    behind = run.shown
    run.shown = lambda endpoint: replace(behind(endpoint), timeout_s=PATIENCE_S)


def _proxy(run: Run) -> Proxy:
    assert run.proxy is not None
    return run.proxy


def _lost_ack(run: Run) -> None:
    with run.striking("lost-ack", f"one reply in {REPLIES_PER_LOSS} is lost"):
        _proxy(run).lose_replies(within=REPLIES_PER_LOSS)
        run.go_on(run.scenario.before_s)
        _proxy(run).lose_replies(within=0)


def _latency(run: Run) -> None:
    least_s, most_s = LATENCY_S
    with run.striking("latency", f"{least_s * 1000:g} to {most_s * 1000:g} ms more, each way"):
        _proxy(run).delay(least_s, most_s)
        run.go_on(run.scenario.before_s)
        _proxy(run).delay(0.0, 0.0)


def _cut(run: Run) -> None:
    with run.striking("cut"):
        for _ in range(RESETS):
            _proxy(run).reset()
            run.go_on(run.rng.uniform(0.5, 1.5) * RESET_EVERY_S)
        _proxy(run).refuse()
        _proxy(run).reset()
        run.go_on(REFUSED_S)
        _proxy(run).accept()


def _half_open(run: Run) -> None:
    """First the whole path is silent, then it is back but has forgotten the connections of before (as a gateway that
    lost its state); at last what was sent on those arrives: the write that everybody had given up."""
    with run.striking("half-open"):
        _proxy(run).hold()
        run.go_on(SILENT_S)
        _proxy(run).release_new()
        run.go_on(FORGOTTEN_S)
        _proxy(run).release()


def _pool_exhausted(run: Run) -> None:
    with run.striking("pool-exhausted"), occupied(run.endpoint):
        run.go_on(TAKEN_S)


NETWORK_FAULTS = (
    Fault(
        "lost-ack",
        _lost_ack,
        verifies="a write that took effect although its acknowledgement was lost is in memory once when it is"
        " retried",
        does_not_verify="requests that never arrive: see cut",
        obstacle=_networked,
        arrange=_in_between,
    ),
    Fault(
        "latency",
        _latency,
        verifies="a slow, jittering network changes neither order nor content, and costs no acknowledged message",
        does_not_verify="loss of packets below TCP, which TCP turns into latency",
        obstacle=_networked,
        arrange=_in_between,
    ),
    Fault(
        "cut",
        _cut,
        verifies="connections that are reset, then refused for a while, lose and double nothing, and the store"
        " comes back by itself",
        does_not_verify="connections that end without a word: see half-open",
        obstacle=_networked,
        arrange=_in_between,
    ),
    Fault(
        "half-open",
        _half_open,
        verifies="a write that is given up, and arrives long after, is in memory at most once, also beside its"
        " retry",
        does_not_verify=f"a store that waits longer than {SILENT_S + FORGOTTEN_S:g} s for an answer: to it this is"
        " only slow",
        obstacle=_networked,
        arrange=_impatient,
    ),
    Fault(
        "pool-exhausted",
        _pool_exhausted,
        verifies="while others hold every connection that the engine allows, nothing is acknowledged that was not"
        " written, and the store goes on when connections are free again",
        does_not_verify="how many connections the target itself opens in production",
        obstacle=_limited,
    ),
)
