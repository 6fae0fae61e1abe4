"""What happens to a PostgreSQL primary with standbys.

Nothing elects a successor here, so the fault also does what a cluster manager does: it promotes the standby that has
received most, makes the others follow it, fences the old primary (kills it) and copies it anew. Where a fault is about
a worse manager, it acts like one.
"""

from __future__ import annotations

from recollect.verify.engines.postgres_ha import HaServer, PostgresHaEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.running.faults.fault import FORCE, ONE_BEHIND, UNFENCED, Injection

NOTICED_S = 0.2
"""How long it takes until somebody notices that the primary is gone, or that it is back; or goes on, by hand."""


class OnStandbys(Injection):
    """The steps that the faults are made of."""

    @property
    def engine(self) -> PostgresHaEngine:
        engine = self.run.engine
        assert isinstance(engine, PostgresHaEngine), "the obstacle keeps the others out"
        return engine

    def promote(self, standby: HaServer) -> None:
        """The others follow it if they answer."""
        self.run.start_engine(lambda: self.engine.promote(standby))
        try:
            for other in self.engine.standbys():
                if other.is_standby:
                    self.engine.lead(other)
        except EngineError as refusal:
            self.run.give_up(f"a standby did not follow the new primary: {refusal}")

    def cut_off(self, *standbys: HaServer) -> None:
        for standby in standbys:
            standby.stream_from(None)

    def fence(self, old: HaServer) -> None:
        self.run.kill_engine(old.kill)
        self.reunite()

    def reunite(self) -> None:
        """Whoever is not the primary becomes its standby."""
        try:
            self.engine.reunite()
            self.engine.await_ready(self.engine.options.start_timeout_s)
        except EngineError as refusal:
            self.run.give_up(f"a server did not become a standby again: {refusal}")
        self.run.start_engine(lambda: self.engine.endpoint)


class PrimaryKilled(OnStandbys):
    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("node-kill"):
            run.kill_engine(old.kill)
            run.go_on(NOTICED_S)
            self.promote(self.engine.most_advanced())
            run.go_on(run.scenario.before_s)
            self.reunite()


class PrimaryKilledAndStarted(OnStandbys):
    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("kill-restart"):
            run.kill_engine(old.kill)
            run.start_engine(lambda: self.engine.bring_back(old))


class PrimaryPaused(OnStandbys):
    """It freezes for longer than anybody waits, and takes writes again for a moment when it wakes up."""

    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("pause"):
            old.pause()
            try:
                run.go_on(NOTICED_S)
                self.cut_off(*self.engine.standbys())
                self.promote(self.engine.most_advanced())
                run.go_on(run.scenario.before_s)
            finally:
                old.resume()
            run.go_on(NOTICED_S)
            self.fence(old)


class PrimaryIsolated(OnStandbys):
    def strike(self) -> None:
        run, old = self.run, self.engine.primary()
        with run.striking("isolate-primary"):
            self.cut_off(*self.engine.standbys())
            run.go_on(NOTICED_S)
            self.promote(self.engine.most_advanced())
            run.go_on(run.scenario.before_s)
            self.fence(old)


class SwitchedOver(OnStandbys):
    """By hand, as for maintenance: the primary stops, which sends the rest; or, forced, it is killed afterwards."""

    def strike(self) -> None:
        run, engine, old = self.run, self.engine, self.engine.primary()
        if run.scenario.variant not in ("", FORCE):
            run.skip(f"{run.scenario.variant}: a way in which only a cluster fails over")
        with run.striking("failover", run.scenario.variant):
            if run.scenario.variant == FORCE:
                run.start_engine(lambda: engine.promote(engine.standbys()[0]))
                self.fence(old)
                return
            run.kill_engine(old.stop)
            run.go_on(NOTICED_S)
            self.promote(engine.most_advanced())
            self.reunite()


class BehindPromoted(OnStandbys):
    """What the primary acknowledges while a standby does not receive is exactly what that standby lacks."""

    def strike(self) -> None:
        run, engine, old = self.run, self.engine, self.engine.primary()
        behind_s = run.scenario.before_s
        behind = engine.standbys()[:1] if run.scenario.variant == ONE_BEHIND else engine.standbys()
        with run.striking("promoted-behind", f"{len(behind)} of 2 standbys {behind_s:g} s behind"):
            self.cut_off(*behind)
            run.go_on(behind_s)
            run.kill_engine(old.kill)
            self.promote(max(behind, key=lambda standby: standby.received))
            self.reunite()


class TwoPrimaries(OnStandbys):
    """The old primary comes back as one, or was never stopped; clients that connect meanwhile find both."""

    def strike(self) -> None:
        run, engine, old = self.run, self.engine, self.engine.primary()
        with run.striking("two-primaries", run.scenario.variant):
            if run.scenario.variant == UNFENCED:
                run.start_engine(lambda: engine.promote(engine.standbys()[0]))
            else:
                run.kill_engine(old.kill)
                self.promote(engine.most_advanced())
                run.start_engine(lambda: engine.bring_back(old))
                run.clients.kill_all()
                run.clients.start_missing()
            run.go_on(run.scenario.before_s)
            self.fence(old)
