"""The loop of a watch: look, speak, look at the replica and the settings, and report what is wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from recollect.errors import RecollectError, StoreReplaced, Unreadable
from recollect.secret import scrub
from recollect.telemetry import WatchTelemetry
from recollect.watch.alarm import UNREACHABLE, Alarm
from recollect.watch.canary import CONFIRM_S, Canary, CanaryAppend
from recollect.watch.metrics import WatchMetrics
from recollect.watch.slowness import AckWait, Slowness

SETTINGS_EVERY_S = 3.0
HEARTBEAT_S = 60.0
COMMAND_S = 30.0
"""Time limit of a webhook command; one that takes longer is ended."""
NOT_A_MEMORY = (Unreadable, StoreReplaced)
"""What a look raises if the engine answers, and what it has is no memory any more."""
UNREADABLE = "unreadable"


@dataclass
class CanaryWatch:
    canary: Canary
    tell: Callable[[dict[str, object]], None]
    """Called with every event; `alarm` is the one that matters."""
    url: str
    slow_s: float
    patience_s: float
    """How long the engine may be silent, since restarts take a while."""
    command: list[str] = field(default_factory=list)
    metrics: WatchMetrics = field(default_factory=WatchMetrics)
    reason: str = ""
    """Why the engine could not be reached the last time."""
    telemetry: WatchTelemetry = field(default_factory=WatchTelemetry)
    _lasting: set[str] = field(default_factory=set)
    """Alarms that last, which are reported when they begin."""
    _slowness: Slowness = field(default_factory=Slowness)
    _explained: bool = False
    """Whether a loss has been reported since the engine was last in order: a store that was replaced says so itself."""
    _durability: str = ""
    """Of the last acknowledgement."""
    _read_s: float | None = None
    """How long the last look took; None if it was not answered."""
    _silent_since: float | None = None
    _replica_silent_since: float | None = None
    _settings_at: float = float("-inf")
    _heartbeat_at: float = float("-inf")
    _calls: list[asyncio.Task[None]] = field(default_factory=list)
    """Webhook commands, one after the other beside the rounds: one that hangs does not blind the watch."""

    async def once(self) -> list[Alarm]:
        """One round; the alarms it returns have already been reported."""
        alarms: list[Alarm] = []
        reached = await self._step(alarms, self._look)
        if reached and time.monotonic() >= self._settings_at + SETTINGS_EVERY_S:
            self._settings_at = time.monotonic()
            await self._step(alarms, self._settings)
        reached = await self._step(alarms, self._speak) and reached
        told = len(alarms)
        await self._report(alarms)  # at once: an engine that is slow is slow to be looked at, too
        if reached:
            await self._step(alarms, self._look)
            self._silent_since, self._explained = None, False
            self._lasts(alarms, UNREACHABLE, None)
        await self._replica(alarms)
        self.metrics.up = int(reached)
        if reached and not alarms:
            self.metrics.heard_at = time.time()
        self.telemetry.note([alarm.name for alarm in alarms], self.metrics.up, self.metrics.replica_lag_s)
        await self._report(alarms[told:])
        if time.monotonic() >= self._heartbeat_at + HEARTBEAT_S:
            self._heartbeat_at = time.monotonic()
            self._event("heard" if reached else "silent", appends=self.metrics.appends)
        return alarms

    async def run(self, every_s: float, stop: asyncio.Event, rounds: int = 0) -> set[str]:
        """Runs until told to stop, or for some rounds; returns the names of the alarms it raised."""
        names: set[str] = set()
        done = 0
        while not stop.is_set():
            alarms = await self.once()
            done += 1
            if rounds:
                names |= {alarm.name for alarm in alarms}
                if done == rounds:
                    break
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                continue
        await self.called()
        return names

    # ---- steps

    async def _look(self, alarms: list[Alarm]) -> None:
        began, self._read_s = time.monotonic(), None
        try:
            alarms += await self.canary.look()
        except NOT_A_MEMORY:
            await asyncio.sleep(CONFIRM_S)
            await self._look_again(alarms)
        self._lasts(alarms, "damaged", None, key=UNREADABLE)
        self._read_s = time.monotonic() - began

    async def _look_again(self, alarms: list[Alarm]) -> None:
        try:
            alarms += await self.canary.look()
        except NOT_A_MEMORY as error:
            told = f"the engine answers, and its memory cannot be read: {self._why(error)}"
            self._lasts(alarms, "damaged", Alarm(name="damaged", sentence=told), key=UNREADABLE)
            raise

    async def _settings(self, alarms: list[Alarm]) -> None:
        alarm = await self.canary.look_at_settings()
        if alarm is not None:
            alarms.append(alarm)

    async def _speak(self, alarms: list[Alarm]) -> None:
        """Writes a message; after a slow acknowledgement others, until one is quick or it is certain that all are slow.

        A write that failed after a long time counts as a slow one only while reads are answered: otherwise the engine
        is away, which is not the same.
        """
        spoken = await self._spoken(None)
        while self._slowness.slow and "slow" not in self._lasting and not self._slowness.is_slow(self.slow_s):
            if spoken.receipt is None:
                await self._look(alarms)
            spoken = await self._spoken(self._slowness.missing_s(self.slow_s))
        if not self._slowness.slow:
            self._lasts(alarms, "slow", None)
        elif self._slowness.is_slow(self.slow_s):
            told = self._slowness.sentence(self.slow_s, self._durability, self._read_s or 0.0)
            self._lasts(alarms, "slow", Alarm(name="slow", sentence=told))
        if spoken.failure is not None:
            raise spoken.failure

    async def _spoken(self, limit_s: float | None) -> CanaryAppend:
        spoken = await self.canary.speak(limit_s)
        slow = spoken.took_s > self.slow_s
        if spoken.receipt is not None:
            self._durability = spoken.receipt.durability.value
            self.metrics.appends += 1
            self.metrics.append_s += spoken.took_s
            self.metrics.last_append_s = spoken.took_s
        elif spoken.failure is not None and not (slow and self._read_s is not None):
            self._slowness.slow.clear()
            raise spoken.failure
        self.metrics.slow += slow
        self._slowness.note(AckWait(spoken.took_s, spoken.receipt is not None), self.slow_s)
        return spoken

    async def _replica(self, alarms: list[Alarm]) -> None:
        """A replica that is silent is reported for itself: its primary answers, and would hide it."""
        away = "unreachable replica"
        try:
            late = await self.canary.look_at_replica()
        except RecollectError as error:
            now = time.monotonic()
            if self._replica_silent_since is None:
                self._replica_silent_since = now
            if now >= self._replica_silent_since + self.patience_s:
                told = f"the replica does not answer: {self._why(error)}"
                self._lasts(alarms, UNREACHABLE, Alarm(name=UNREACHABLE, sentence=told), key=away)
            return
        self._replica_silent_since = None
        self._lasts(alarms, UNREACHABLE, None, key=away)
        self._lasts(alarms, "stale-replica", late)
        self.metrics.replica_lag_s = self.canary.replica_lag_s

    async def _step(self, alarms: list[Alarm], step: Callable[[list[Alarm]], Awaitable[None]]) -> bool:
        """Whether the engine answered."""
        try:
            await step(alarms)
        except RecollectError as error:
            if UNREADABLE in self._lasting or (self._explained and isinstance(error, StoreReplaced)):
                return False
            if self._read_s is None:
                self._slowness.slow.clear()  # it is away: what was slow before may have been its end
            if self._silent_since is None:
                self._silent_since = time.monotonic()
            self.reason = self._why(error)
            if time.monotonic() >= self._silent_since + self.patience_s:
                self._lasts(alarms, UNREACHABLE, Alarm(name=UNREACHABLE, sentence=self.reason))
            return False
        return True

    def _why(self, error: RecollectError) -> str:
        return f"{type(error).__name__}: {scrub(str(error), self.url, self.canary.replica)}"[:500]

    def _lasts(self, alarms: list[Alarm], name: str, alarm: Alarm | None, *, key: str = "") -> None:
        """Reports a lasting alarm when it begins, and again when it ends. Two of one name have keys of their own."""
        key = key or name
        if alarm is not None and key not in self._lasting:
            self._lasting.add(key)
            alarms.append(alarm)
        elif alarm is None and key in self._lasting:
            self._lasting.remove(key)
            self._event("over", name=name)

    # ---- telling

    async def _report(self, alarms: list[Alarm]) -> None:
        for alarm in alarms:
            self._explained |= alarm.lost > 0 or alarm.name == "replaced"
            self.metrics.alarms[alarm.name] += 1
            told = {
                "name": alarm.name,
                "sentence": alarm.sentence,
                "lost": alarm.lost,
                "span_s": alarm.span_s,
            }
            event = self._event("alarm", **told, **({"server": alarm.server} if alarm.server else {}))
            if self.command:
                self._calls.append(asyncio.create_task(self._call(event, self._calls[-1:])))
        self._calls = [call for call in self._calls if not call.done()]

    def _event(self, event: str, **told: object) -> dict[str, object]:
        said = {"time": round(time.time(), 3), "event": event, **told}
        self.tell(said)
        return said

    async def called(self) -> None:
        """Waits for the webhook commands that still run."""
        await asyncio.gather(*self._calls)

    async def _call(self, event: dict[str, object], before: list[asyncio.Task[None]]) -> None:
        """The webhook command, with the alarm on its standard input: the line that is printed."""
        await asyncio.gather(*before)
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._event("command-failed", sentence=f"{self.command[0]}: {error.strerror or error}")
            return
        try:
            async with asyncio.timeout(COMMAND_S):
                await process.communicate(json.dumps(event).encode() + b"\n")
            how = f"ended with {process.returncode}"
        except (TimeoutError, OSError):
            if process.returncode is None:
                process.kill()
                await process.wait()
            how = f"took longer than {COMMAND_S:g} s and was ended"
        if process.returncode:
            self._event("command-failed", sentence=f"{self.command[0]} {how}")
