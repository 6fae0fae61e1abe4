"""A network that delays, cuts, and keeps silent; and an engine whose connections are all taken by others."""

from __future__ import annotations

import time
from dataclasses import replace

from recollect.guarantees import MADE_OF
from recollect.verify import providers
from recollect.verify.judging.detection import SEVERAL_CALLERS
from recollect.verify.running.faults.cluster import REPLIES_PER_LOSS, RepliesLost
from recollect.verify.running.faults.connection_limit import occupied
from recollect.verify.running.faults.fault import Fault, Injection, ours_only, servers_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.proxy import Proxy
from recollect.verify.running.scenario import Scenario

LATENCY_S = (0.01, 0.06)
RESETS = 3
RESET_EVERY_S = 0.04
REFUSED_S = 0.15
PATIENCE_S = 1.0
"""The longest the target is told to wait, so that it gives up while its request is still under way."""
SILENT_S = 0.3
"""Nothing passes at all …"""
FORGOTTEN_S = 1.0
"""… then new connections do, and the old ones are silent for this much longer."""
TAKEN_S = 0.4


def _networked(scenario: Scenario) -> str | None:
    if scenario.engine_name == "sqlite" or scenario.policy == "embedded":
        return "the engine lives inside the target's process: there is no network between them"
    return None


_PROXIED_GROUPS = ("redis-cluster", "redis-sentinel")


def _replies_pass_a_proxy(scenario: Scenario) -> str | None:
    if scenario.engine_kind in MADE_OF:
        if scenario.engine_kind not in _PROXIED_GROUPS:
            return f"{scenario.engine_name}: nothing stands between its servers and their clients"
        return ours_only(scenario)
    return _networked(scenario)


def _limited(scenario: Scenario) -> str | None:
    if providers.parse(scenario.engine)[0] not in ("redis", "postgres"):
        return "the engine has no limit on connections"
    return servers_only(scenario)


class _Proxied(Injection):
    """A proxy stands between the clients and the engine."""

    proxy: Proxy

    def attach(self) -> None:
        self.proxy = Proxy(self.run.endpoint, self.run.rng)
        self.run.at_end(self.proxy.close)
        self.run.clients.show(lambda endpoint: self.proxy.in_front())


class LostAck(_Proxied):
    def strike(self) -> None:
        with self.run.striking("lost-ack", f"one reply in {REPLIES_PER_LOSS} is lost"):
            self.proxy.lose_replies(within=REPLIES_PER_LOSS)
            self.run.go_on(self.run.scenario.before_s)
            self.proxy.lose_replies(within=0)


def _lost_ack(run: FaultedRun) -> Injection:
    return RepliesLost(run) if run.scenario.engine_kind in MADE_OF else LostAck(run)


class Latency(_Proxied):
    def strike(self) -> None:
        least_s, most_s = LATENCY_S
        with self.run.striking("latency", f"{least_s * 1000:g} to {most_s * 1000:g} ms more, each way"):
            self.proxy.delay(least_s, most_s)
            self.run.go_on(self.run.scenario.before_s)
            self.proxy.delay(0.0, 0.0)


class Cut(_Proxied):
    def strike(self) -> None:
        with self.run.striking("cut"):
            for _ in range(RESETS):
                self.proxy.reset()
                self.run.go_on(self.run.rng.uniform(0.5, 1.5) * RESET_EVERY_S)
            self.proxy.refuse()
            self.proxy.reset()
            self.run.go_on(REFUSED_S)
            self.proxy.accept()


class HalfOpen(_Proxied):
    """First nothing passes. Then new connections work and the old ones stay silent, as behind a gateway that lost its
    state. In the end what was sent on the old ones arrives: writes that everybody had given up on."""

    def attach(self) -> None:
        super().attach()
        self.run.clients.show(lambda endpoint: replace(endpoint, timeout_s=PATIENCE_S))

    def strike(self) -> None:
        with self.run.striking("half-open"):
            self.proxy.hold()
            self.run.go_on(SILENT_S)
            begun = time.monotonic()
            self.proxy.release_new()
            self.go_on_until(lambda: not self._held(begun), FORGOTTEN_S)
            self.proxy.release()

    def _held(self, before: float) -> bool:
        """Whether anybody still waits for what was asked before then."""
        return any(client.intent is not None and client.since < before for client in self.run.clients.present)


class PoolTaken(Injection):
    def strike(self) -> None:
        with self.run.striking("pool-exhausted"), occupied(self.run.endpoint):
            self.run.go_on(TAKEN_S)


NETWORK_FAULTS = (
    Fault(
        "lost-ack",
        _lost_ack,
        verifies="a write that took effect although its acknowledgement was lost is stored only once when it is"
        " retried",
        does_not_verify="requests that never arrive: see cut",
        obstacle=_replies_pass_a_proxy,
        on_groups=("",),
    ),
    Fault(
        "latency",
        Latency,
        verifies="a slow, jittering network changes neither order nor content, and costs no acknowledged message",
        does_not_verify="loss of packets below TCP, which TCP turns into latency",
        obstacle=_networked,
    ),
    Fault(
        "cut",
        Cut,
        verifies="when connections are reset and then refused for a while, nothing is lost or duplicated, and the store"
        " recovers on its own",
        does_not_verify="connections that end silently: see half-open",
        obstacle=_networked,
        variants=("", SEVERAL_CALLERS),
        usual_on={SEVERAL_CALLERS: ("redis", "postgres")},
        callers={SEVERAL_CALLERS: 3},
    ),
    Fault(
        "half-open",
        HalfOpen,
        verifies="a write that was given up on and arrives much later is stored at most once, even together with its"
        " retry",
        does_not_verify=f"a store that waits longer than {SILENT_S + FORGOTTEN_S:g} s for an answer: to it the network"
        " is only slow",
        obstacle=_networked,
    ),
    Fault(
        "pool-exhausted",
        PoolTaken,
        verifies="while others hold every connection that the engine allows, nothing is acknowledged that was not"
        " written, and the store goes on when connections are free again",
        does_not_verify="how many connections the target itself opens in production",
        obstacle=_limited,
    ),
)
