"""What happens to PostgreSQL under Patroni. Nobody helps it: Patroni notices, chooses a successor, and takes the old
primary back as a standby."""

from __future__ import annotations

import time
from collections.abc import Callable

from recollect.verify.engines.patroni import PatroniEngine, PatroniMember
from recollect.verify.host.errors import EngineError
from recollect.verify.running.faults.fault import Injection

CHANGE_TIMEOUT_S = 120.0
"""Three times the 20 s for which the lock of a vanished primary stays its own, and what a busy machine adds."""
_STEP_S = 0.2


class OnPatroni(Injection):
    """The steps that the faults are made of."""

    @property
    def engine(self) -> PatroniEngine:
        engine = self.run.engine
        assert isinstance(engine, PatroniEngine), "the obstacle keeps the others out"
        return engine

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Lets the clients work until the condition holds; if it never does, the run shows nothing."""
        end = time.monotonic() + CHANGE_TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.run.give_up(f"{otherwise} within {CHANGE_TIMEOUT_S:g} s")
            self.run.go_on(_STEP_S)

    def await_successor(self, old: PatroniMember) -> None:
        began = time.monotonic()
        self.until(lambda: self.engine.has_successor(old), "Patroni promoted no standby")
        self.run.remark(f"Patroni promoted another after {time.monotonic() - began:.1f} s")

    def await_whole(self) -> None:
        self.until(self.engine.is_ready, "the servers did not come together again")

    def start_again(self, member: PatroniMember) -> None:
        try:
            member.begin()
        except EngineError as refusal:
            self.run.give_up(f"a server did not start again: {refusal}")
        self.until(member.is_up, "a server did not start again")
        member.await_start()
        self.await_whole()


class HostLost(OnPatroni):
    """The primary and its Patroni are gone at once: nobody gives the lock back, and it has to run out."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("node-kill"):
            old.kill()
            self.await_successor(old)
            run.go_on(run.scenario.before_s)
            self.start_again(old)


class ServerKilled(OnPatroni):
    """Only PostgreSQL dies. Its Patroni holds the lock, and starts it again."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("kill-restart"):
            before = old.server_pid
            run.kill_engine(old.kill_server)
            self.until(lambda: old.server_pid not in (None, before), "Patroni did not start the server again")
            self.await_whole()
            run.start_engine(lambda: self.engine.endpoint)


class HostPaused(OnPatroni):
    """The primary and its Patroni freeze until another has the lock; then both wake up."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("pause"):
            old.pause()
            try:
                self.await_successor(old)
                run.go_on(run.scenario.before_s)
            finally:
                old.resume()
            self.await_whole()


class PatroniSwitchedOver(OnPatroni):
    """As for maintenance: Patroni stops the primary, which sends the rest, and promotes the one that has it."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        if run.scenario.variant:
            run.skip("Patroni lets nobody take over from a primary that runs: see node-kill")
        with run.striking("failover"):
            answer = old.ask_to_switch_over()
            try:
                self.await_successor(old)
                self.await_whole()
            finally:
                answer.close()


class _BehindProxies(OnPatroni):
    def record(self) -> None:
        self.engine.put_proxies_between()


class LeaderIsolated(_BehindProxies):
    """From etcd, and from the other servers, but not from clients."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("isolate-primary"):
            self.engine.isolate(old)
            try:
                self.await_successor(old)
                run.go_on(run.scenario.before_s)
            finally:
                self.engine.heal()
            self.await_whole()


class BehindChosen(_BehindProxies):
    """For a while nothing reaches the standbys; then the primary's host is gone, with what was on its way. Patroni
    takes a standby that lacks less than `maximum_lag_on_failover`."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        behind_s = run.scenario.before_s
        with run.striking("promoted-behind", f"both standbys {behind_s:g} s behind"):
            self.engine.hold_back(old)
            run.go_on(behind_s)
            run.kill_engine(old.kill)
            self.engine.lose(old)
            self.await_successor(old)
            run.start_engine(lambda: self.engine.endpoint)
            self.start_again(old)
