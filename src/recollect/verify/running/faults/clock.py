"""Wall clocks that step back, stand still, or leap forward: the target's, the engine's, or both.

The clocks are moved in the running processes (see `verify.clock`); monotonic clocks go on, as they do when a machine's
clock is set. Each time, the engine itself is asked whether its clock did move: a preload that did not take would make
every store look good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from recollect.verify import clock, providers
from recollect.verify.clock import Clock
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.engines import Endpoint, EngineError
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.running.faults.fault import Fault, Injection, mounting_obstacle
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire import pgwire, resp

BACK_S = 3600.0
FORWARD_S = 7 * 86400.0
"""Without `--retain`, memory must live for ever; a week finds the usual expiries."""
MARGIN_S = 60.0
"""The leap stays this far below the retention asked for, so that an expiry of exactly that length is not accused."""
RENEWED_AFTER = (0.6, 1.2)
"""Shares of a declared retention: when sessions are added to, and when they are read again."""
STRUCK_S = 0.3
EXPIRY_TIMEOUT_S = 2.0
EXPIRY_QUIET_S = 0.25
"""Redis looks for expired keys ten times a second; once it has looked twice and found none, none are left."""
MOVED_TIMEOUT_S = 2.0
_TOLERANCE_S = 30.0

VARIANTS = ("both", "target", "engine")


def _variant(scenario: Scenario) -> str:
    return scenario.variant or VARIANTS[0]


# ---- where it can be done


def clock_obstacle(scenario: Scenario) -> str | None:
    if (reason := clock.unavailable()) is not None:
        return reason
    if _variant(scenario) == "target":
        return None
    if _embedded(scenario):
        both = _variant(scenario) == "both"
        return None if both else "the engine lives inside the target's process and has no clock of its own"
    return _engine_obstacle(scenario)


def _embedded(scenario: Scenario) -> bool:
    return scenario.engine_name == "sqlite" or scenario.policy == "embedded"


def _engine_obstacle(scenario: Scenario) -> str | None:
    if scenario.url is not None:
        return "the engine is yours (--provider url): its clock is never touched; see the variant `target`"
    if _asked(scenario) not in _TELL_TIME:
        return "the engine cannot be asked for its time, so whether its clock moved could not be shown"
    provider = (scenario.provider or "").partition(":")[0]
    if provider != "compose":
        try:
            build = providers.find(scenario.engine, provider or None)
        except EngineError:
            return None  # starting it will report what is missing
        if build.provider != "docker":
            return cannot_see(Path(build.location))
    return mounting_obstacle(scenario)


def _asked(scenario: Scenario) -> str:
    return providers.parse(scenario.engine)[0]


# ---- the engine's own time


def _redis_time_s(endpoint: Endpoint) -> float:
    with resp.Connection(redis_address(endpoint.socket_url or endpoint.url)) as connection:
        answer = connection.ask("TIME")
    assert isinstance(answer, list)
    return float(str(answer[0])) + float(str(answer[1])) / 1e6


def _postgres_time_s(endpoint: Endpoint) -> float:
    with pgwire.Connection(postgres_address(endpoint.socket_url or endpoint.url)) as connection:
        return float(connection.value("SELECT extract(epoch FROM clock_timestamp())") or "nan")


_TELL_TIME: dict[str, Callable[[Endpoint], float]] = {
    "redis": _redis_time_s,
    "postgres": _postgres_time_s,
}


def _check_engine(run: FaultedRun, moved: Clock) -> None:
    """Waits until the engine shows the moved time: Redis reads the clock once per turn of its event loop."""
    ask = _TELL_TIME[run.engine.name]

    def obeys() -> bool:
        shown_s = ask(run.endpoint)
        if moved.frozen and ask(run.endpoint) != shown_s:
            return False
        return abs(shown_s - time.time() - moved.offset_s) < _TOLERANCE_S

    wait_until(
        obeys,
        MOVED_TIMEOUT_S,
        f"the clock was {'stopped' if moved.frozen else f'moved by {moved.offset_s:.0f} s'}, and"
        f" {run.engine.product} {run.engine.version} did not show it: the preloaded clock does not reach it (use"
        " another build, or the variant `target`)",
    )


# ---- moving them


class MovedClock(Injection):
    """The clocks of the target, the engine, or both are ours from the start, and right until the fault strikes."""

    def __init__(self, run: FaultedRun) -> None:
        super().__init__(run)
        self._clock: Clock
        self._variant = _variant(run.scenario)
        self._of_engine = self._variant != "target" and not _embedded(run.scenario)

    def arrange(self) -> None:
        self._clock = Clock()
        self.run.at_end(self._clock.close)
        if self._variant != "engine":
            self.run.clients.obey(self._clock)
        if self._of_engine:
            env = self.run.engine_env
            env |= self._clock.env(env.get("LD_PRELOAD", ""))

    @contextmanager
    def moving(self, name: str, move: Callable[[Clock], None], offset_s: float = 0.0) -> Iterator[None]:
        with self.run.striking(name, self._variant, self._told(offset_s)):
            move(self._clock)
            self._check()
            yield
            self._clock.heal()

    def _told(self, offset_s: float) -> float:
        """How far the engine's clock is moved."""
        return offset_s if self._variant != "target" else 0.0

    def _check(self) -> None:
        if self._of_engine and not self.run.engine_is_away:
            _check_engine(self.run, self._clock)

    def leap_forward(self, name: str, stages_s: Sequence[float] = ()) -> None:
        """Leaps over the time that memory must live, all at once; the fault is recorded as `name`. Before that it stops
        at each of the stages, where clients go on working."""
        retain_s = self.run.scenario.retain_s
        leap_s = FORWARD_S if retain_s is None else max(retain_s - MARGIN_S, retain_s / 2)
        first_s, *further_s = *stages_s, max(stages_s, default=0.0) + leap_s
        with self.moving(name, lambda clock: clock.move(first_s), first_s):
            for offset_s in further_s:
                self.run.go_on(STRUCK_S)
                self.run.settle(0.0)  # so that it is known what is older than the move
                self.run.struck_further(name, self._variant, self._told(offset_s))
                self._clock.move(offset_s)
                self._check()
            self.run.go_on(STRUCK_S / 2)  # what is read now expires because it is read
            if self.run.engine.name == "redis" and not self.run.engine_is_away:
                _wait_for_expiry(self.run.endpoint)
            self.run.go_on(STRUCK_S / 2)
            # No clock comes back from the future: what was begun there must not sweep what is written afterwards.
            self.run.settle(0.0)


class ClockBack(MovedClock):
    def strike(self) -> None:
        with self.moving("clock-back", lambda clock: clock.move(-BACK_S), -BACK_S):
            self.run.go_on(STRUCK_S)


class ClockFrozen(MovedClock):
    def strike(self) -> None:
        with self.moving("clock-frozen", lambda clock: clock.freeze()):
            self.run.go_on(STRUCK_S)


class ClockForward(MovedClock):
    """Where memory ends some time after the latest append, a session is added to before that time is over, and is read
    when it would be over had nobody added to it."""

    def strike(self) -> None:
        lives_s = self.run.retention_s if self._variant != "target" else None
        stages_s = () if lives_s is None else tuple(share * lives_s for share in RENEWED_AFTER)
        self.leap_forward("clock-forward", stages_s)


def _wait_for_expiry(endpoint: Endpoint) -> None:
    """Lets Redis find by itself the expired keys that nobody reads."""
    with resp.Connection(redis_address(endpoint.socket_url or endpoint.url)) as connection:
        left = [_volatile(connection)]
        since = time.monotonic()

        def found_all() -> bool:
            nonlocal since
            now = _volatile(connection)
            if now != left[0]:
                left[0], since = now, time.monotonic()
            return now == 0 or time.monotonic() - since > EXPIRY_QUIET_S

        wait_until(found_all, EXPIRY_TIMEOUT_S, "Redis was still expiring keys")


def _volatile(connection: resp.Connection) -> int:
    """Keys that have an expiry, in all databases."""
    lines = resp.fields_of(connection.ask("INFO", "keyspace")).values()
    return sum(int(part.removeprefix("expires=")) for line in lines for part in line.split(",")[1:2])


CLOCK_FAULTS = (
    Fault(
        "clock-back",
        ClockBack,
        verifies="order and acknowledged messages do not depend on clocks: both machines' clocks, or one, step back"
        f" by {BACK_S / 60:g} minutes and later forward again",
        does_not_verify="clocks that drift slowly; file times, which the kernel stamps",
        obstacle=clock_obstacle,
        variants=VARIANTS,
    ),
    Fault(
        "clock-frozen",
        ClockFrozen,
        verifies="messages that get the same time keep their order, and none replaces another",
        does_not_verify="a coarse clock: here the time stays the same for as long as the fault lasts",
        obstacle=clock_obstacle,
        variants=VARIANTS,
    ),
    Fault(
        "clock-forward",
        ClockForward,
        verifies="what must be kept for the time given by --retain (a week without it) does not expire earlier,"
        " neither when it is read nor by the engine's own search; what a store declares to keep for less than that"
        " (`retention_s`) is renewed as it says, and then gone",
        does_not_verify="expiry by a job that runs outside the target and the engine",
        obstacle=clock_obstacle,
        variants=VARIANTS,
    ),
)
