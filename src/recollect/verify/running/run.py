"""One run: clients in their own processes, a fault in the middle, and a history of what was asked and what came back.

Only the runner writes the history, and it has one thread: what it has not received was not acknowledged. The steps of
a run: start the engine, open the clients, let them work, let the fault strike and heal, let them go on working, wait
until nothing is under way, then read every session again from a fresh process. `LiveRun` is the run as its fault sees
it, `Driver` talks to the clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from recollect import __version__, private
from recollect.guarantees import promise
from recollect.printable import counted
from recollect.secret import Scrubber
from recollect.verify.engines import EngineError, NotInstalled
from recollect.verify.host.busy import patient_s
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.checkers.does_not_recover import UNDISTURBED
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import OK_OPS_MIN, HistoryHeader, Trait
from recollect.verify.judging.verdict import Verdict, must_recover
from recollect.verify.running import engine_inspection, logs, seal
from recollect.verify.running.clients import Clients
from recollect.verify.running.driver import Driver
from recollect.verify.running.faults import fault_named
from recollect.verify.running.faults.fault import WITNESS
from recollect.verify.running.live_run import LiveRun
from recollect.verify.running.notes import Notes, RunSkipped, RunStopped
from recollect.verify.running.real_policy import real_policy, told
from recollect.verify.running.scenario import Scenario, save
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import WORKLOADS, left_out
from recollect.verify.target import pipe
from recollect.verify.target.workers import TargetBroken, Worker, WorkerDied

RECOVERY_TIMEOUT_S = 4.0
"""Longer than `does-not-recover` waits before it reports an outage."""

UNBROKEN = frozenset({UNDISTURBED, "concurrent-writers", "cancel"})
"""The faults under which the engine works as ever."""

FIRST_TIMEOUT_S = 5.0

FILL_IDLE_S = 20.0

WINDOW_MAX_S = 1.0
"""Waiting out a longer window would take most of a cell; the report then gives the size of the loss."""
CUT_WINDOW_MAX_S = 2.0
"""The same where power is cut: there a window is really lost, and with it whatever a store made when it opened."""
POWER_IS_CUT = frozenset({"power-loss", "fsync-error", "slow-fsync"})


class Run:
    """From a scenario to a verdict."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        progress: Callable[[str], None] = lambda step: None,
        preload: tuple[str, ...] = (),
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        self.notes = Notes()
        self.engine_version = self.provider = ""
        self.release = ""
        """The distribution and version of a store that has a name."""
        self.traits: tuple[str, ...] = ()
        """What the target declares, with its window."""
        self.real_policy = ""
        """The policy of the store's own connections, if it is not the scenario's."""
        self._progress = progress
        self._fault = fault_named(scenario.fault)
        self._clients = Clients(
            scenario,
            folder / logs.TARGET_LOG,
            preload or scenario.modules,
            self.notes,
            callers=self._fault.callers.get(scenario.variant, 1),
        )
        self._live = LiveRun(scenario, folder, self._clients, self.notes)
        self._injection = self._fault.inject(self._live)
        self._workload = WORKLOADS[scenario.workload]
        self._history: HistoryWriter | None = None
        self._began = 0.0
        self._driver: Driver | None = None

    @property
    def operations(self) -> int:
        """How many were asked for."""
        return 0 if self._driver is None else self._driver.operations

    @property
    def scrubber(self) -> Scrubber:
        return self._live.scrubber

    def execute(self) -> Verdict:
        """Runs the scenario and judges its history."""
        save(self.scenario, self.folder)
        seal.write(self.folder)
        # What an earlier run left in this folder is no evidence for this one.
        for left in (self.history, self.folder / logs.ENGINE_LOG, self.folder / WITNESS):
            left.unlink(missing_ok=True)
        reason: str | None = None
        try:
            self._work(*self._start())
        except (NotInstalled, RunSkipped) as nothing:
            reason = str(nothing)
            return Verdict(status="skipped", reason=reason)
        except (RunStopped, TargetBroken, EngineError) as stopped:
            reason = str(stopped)
        except WorkerDied as death:
            reason = f"in the middle of the fault, {death}"
        except BaseException as error:
            reason = f"stopped by {type(error).__name__}"
            raise
        finally:
            if self._history is not None:
                _ = self._history.run_ended() if reason is None else self._history.run_stopped(reason)
            self._end()
        return self._judged(reason)

    # ---- set up

    def _start(self) -> tuple[Transcript, Driver]:
        self._progress("starting")
        self._injection.arrange()
        self._live.make_engine()
        self._injection.record()
        self._live.first_start()
        self.engine_version, self.provider = self._live.engine.version, self._live.engine.provider
        self._injection.attach()
        try:
            first, ready = self._clients.open_first()
        except TargetBroken as refusal:
            self._injection.unopened(str(refusal))
            raise
        if (misfit := self._workload.misfit(self._clients.abilities)) is not None:
            raise RunStopped(misfit)
        return self._begin(first, ready)

    def _begin(self, first: Worker, ready: pipe.Ready) -> tuple[Transcript, Driver]:
        traits: tuple[Trait, ...] = tuple(ready.traits)  # type: ignore[arg-type]
        window = () if ready.keeps_last is None else (f"keeps_last={ready.keeps_last}",)
        self.release, self.traits = ready.release, (*ready.traits, *window)
        self._note_policy(ready)
        header = self._header(traits, ready)
        history = self._history = HistoryWriter(private.artifact(self.history), header)
        self._began = time.monotonic()
        retries = "turn" in self._clients.abilities or self.scenario.fault == "lost-ack"
        transcript = Transcript(
            history,
            retries=retries,
            retention_s=self._declared(ready),
            keeps_newest=ready.keeps_last is not None,
        )
        driver = self._driver = Driver(
            self._clients,
            transcript,
            self.notes,
            ops_max=self.scenario.ops_max,
            turn_max=self.scenario.turn_max,
        )
        self._live.begin(history, transcript, driver)
        wanted = (self.scenario.writers, self.scenario.readers)
        writers, readers = self._fault.clients.get(self.scenario.variant, wanted)
        if self.scenario.ops_max is not None:  # the run was made smaller: no more operations than this
            writers, readers = min(writers, wanted[0]), min(readers, wanted[1])
        if "single_writer" in traits or not self._workload.many_writers:
            writers = 1
        self._clients.begin(
            first, transcript, writers=writers, readers=readers, one_process="one_process" in traits
        )
        return transcript, driver

    def _note_policy(self, ready: pipe.Ready) -> None:
        offered = self.scenario.policy
        real = real_policy(self.scenario.engine_name, offered, ready.settings)
        if real != offered:
            self.real_policy = real
            self.notes.remarks.append(told(offered, real, ready.settings))

    def _declared(self, ready: pipe.Ready) -> float | None:
        """How long memory lives, as the target declares it. If the user asked for longer, that is no excuse."""
        declared_s, wanted_s = ready.retention_s, self.scenario.retain_s
        return None if declared_s is None or declared_s < (wanted_s or 0.0) else declared_s

    @property
    def history(self) -> Path:
        return self.folder / "history.jsonl"

    def _header(self, traits: tuple[Trait, ...], ready: pipe.Ready) -> HistoryHeader:
        return HistoryHeader(
            recollect=__version__,
            seed=self.scenario.seed,
            target=self.scenario.target,
            release=self.release,
            engine=self.scenario.engine_name,
            engine_version=self.engine_version,
            provider=self.provider,
            policy=self.scenario.policy,
            real_policy=self.real_policy,
            fault=self.scenario.fault,
            variant=self.scenario.variant,
            workload=self.scenario.workload,
            traits=traits,
            abilities=tuple(sorted(self._clients.abilities)),
            retain_s=self.scenario.retain_s,
            keeps_last=ready.keeps_last,
            expected_errors=tuple(ready.expected_errors),
            loss_errors=tuple(ready.loss_errors),
            refresh=ready.refresh,
            # A run that was made smaller says what it can with the few operations that it has.
            ok_ops_min=OK_OPS_MIN if self.scenario.ops_max is None else 1,
            ends=True,
        )

    # ---- the phases

    def _work(self, transcript: Transcript, driver: Driver) -> None:
        self._progress("working")
        _fill(self._clients, transcript, driver)
        judged_from = self._began + promised_s(self.scenario)
        driver.work_on(self.scenario.before_s * self._live.rng.uniform(0.7, 1.3))
        _await_writes(transcript, driver)
        driver.go_on(max(0.0, judged_from - time.monotonic()))
        self._progress("working" if self.scenario.fault == UNDISTURBED else self.scenario.fault)
        self._injection.strike()
        written = transcript.written
        self._progress("working")
        driver.work_on(self.scenario.after_s)
        scenario = self.scenario
        if must_recover(scenario.engine_name, scenario.policy, scenario.fault, scenario.variant):
            _await_recovery(transcript, driver, written)
        self._progress("reading")
        driver.settle()
        self._clients.make_room()
        driver.read_everything(ends="last" in self._clients.abilities and not self._workload.unmarked)
        self._ask_the_engine(transcript)
        if transcript.kinds and (remark := left_out(self._clients.abilities, transcript.kinds)) is not None:
            self.notes.remarks.append(remark)
        if self.scenario.fault in UNBROKEN and driver.hung is not None:
            raise RunStopped(
                f"nothing was broken, and {driver.hung}: what would have come after it is not known"
            )

    def _ask_the_engine(self, transcript: Transcript) -> None:
        """If a session came back short, checks whether the engine still has the rows."""
        short, endpoint = transcript.short_sessions(), self._live.endpoint
        held = engine_inspection.numbers_in(endpoint.engine, endpoint) if short else None
        if held is not None:
            process = self._clients.number()
            for session in short:
                transcript.counted(process, session, held)

    # ---- tear down, and judge

    def _end(self) -> None:
        """Last in, first out; one failure does not stop the others."""
        with ExitStack() as stack:
            stack.callback(self._live.end_engine)
            if self._history is not None:
                stack.callback(self._history.close)
            stack.callback(logs.conceal, self.folder / logs.TARGET_LOG, self.scrubber)
            stack.callback(self._clients.close)
            stack.callback(self._live.undo)

    def _judged(self, reason: str | None) -> Verdict:
        """`reason` is what ended the run early, if anything did."""
        if not self.history.exists():
            return Verdict(status="unknown", reason=reason)
        verdict = analyze(History(self.history))
        if reason is not None and verdict.status in ("held", "unknown"):
            return msgspec.structs.replace(verdict, status="unknown", reason=reason)
        if verdict.status == "unknown" and self.notes.hangs:
            return msgspec.structs.replace(verdict, reason=f"{verdict.reason}: {self.notes.hangs[0]}")
        return verdict


def promised_s(scenario: Scenario) -> float:
    """How old a run has to be before its fault: what falls into the window of a promise may be lost, and in a young run
    that includes the tables and the identity that the store made when it opened."""
    try:
        given = promise(scenario.engine_name, scenario.policy, scenario.fault, scenario.variant)
    except ValueError:
        return 0.0
    window_s = given.window_s or 0.0
    max_s = CUT_WINDOW_MAX_S if POWER_IS_CUT & set(scenario.fault.split("+")) else WINDOW_MAX_S
    return window_s * 1.05 if given.allows and window_s <= max_s else 0.0


def _fill(clients: Clients, transcript: Transcript, driver: Driver) -> None:
    """Waits until every session is as long as the scenario wants it; gives up when nothing is written any more."""
    end = time.monotonic() + FILL_IDLE_S
    before = transcript.written
    while clients.missing:
        driver.go_on(0.05)
        if transcript.written > before:
            before, end = transcript.written, time.monotonic() + FILL_IDLE_S
        elif time.monotonic() > end:
            raise RunStopped(
                f"the sessions lack {counted(clients.missing, 'message')}, and no write succeeded for {FILL_IDLE_S:g} s"
            )


def _await_recovery(transcript: Transcript, driver: Driver, written: int) -> None:
    """A store that has not stored anything since the fault healed gets more time: slow to recover is not never."""
    end = time.monotonic() + patient_s(RECOVERY_TIMEOUT_S)
    while time.monotonic() < end and transcript.written <= written and driver.writes_on:
        driver.go_on(0.02)


def _await_writes(transcript: Transcript, driver: Driver) -> None:
    """On a slow machine the fault would strike before there is anything to lose, or anything to judge by."""
    end = time.monotonic() + FIRST_TIMEOUT_S
    while time.monotonic() < end and (not transcript.written or transcript.succeeded < OK_OPS_MIN):
        if not driver.writes_on:
            return  # a run of a few operations, and they are done
        driver.go_on(0.02)
