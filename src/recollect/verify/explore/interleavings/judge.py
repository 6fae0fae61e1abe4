"""One schedule's history, judged by the same checkers as every other history.

Most schedules have the same history as another: each distinct history is judged once. The numbers inside the messages
differ between schedules and are left out of the comparison.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from recollect import __version__
from recollect.verify.explore.interleavings.dialogues import NUMBERS_PER_SCHEDULE
from recollect.verify.explore.interleavings.program import ClientsProgram
from recollect.verify.explore.interleavings.schedule_history import ScheduleHistory
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.history import RecordedHistory
from recollect.verify.judging.op import ANSWERS, Event, HistoryHeader, Trait
from recollect.verify.judging.verdict import Anomaly

_decode = msgspec.json.Decoder(Event).decode


class JudgedSchedule(NamedTuple):
    """What is wrong with a schedule, worst first; and why nothing could be concluded, if so."""

    key: bytes
    """The history without its header: equal histories are judged once."""
    anomalies: tuple[Anomaly, ...] = ()
    doubt: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(anomaly.name for anomaly in self.anomalies)


class Judge:
    """Judges schedules of one target; remembers what it has judged."""

    def __init__(
        self,
        target: str,
        engine: str,
        engine_version: str,
        policy: str,
        traits: tuple[Trait, ...] = (),
        expected_errors: frozenset[str] = frozenset(),
        keeps_last: int | None = None,
    ) -> None:
        self._header = HistoryHeader(
            recollect=__version__,
            target=target,
            engine=engine,
            engine_version=engine_version,
            policy=policy,
            workload=INTERLEAVINGS,
            traits=traits,
            keeps_last=keeps_last,
            ok_ops_min=0,
            ends=True,
        )
        self._expected = ANSWERS | expected_errors
        self._known: dict[bytes, JudgedSchedule] = {}
        self._schedules = 0

    def history(self, program: ClientsProgram) -> ScheduleHistory:
        """For the next schedule."""
        self._schedules += 1
        header = msgspec.structs.replace(self._header, program=str(program))
        return ScheduleHistory(header, self._schedules * NUMBERS_PER_SCHEDULE, self._expected)

    def judge(self, history: ScheduleHistory) -> JudgedSchedule:
        """Ends the history, and judges it."""
        history.writer.run_ended()
        _, _, told = history.file.getvalue().partition(b"\n")
        if told not in self._known:
            events = [_decode(line) for line in told.split(b"\n")[:-1]]
            self._known[told] = self._judged(told, RecordedHistory(history.writer.header, events))
        return self._known[told]

    def _judged(self, key: bytes, history: RecordedHistory) -> JudgedSchedule:
        verdict = analyze(history)
        anomalies = verdict.anomalies if verdict.status in ("violated", "unknown") else ()
        crashed = verdict.status == "unknown" and "crashed" in (verdict.reason or "")
        return JudgedSchedule(key, anomalies, verdict.reason if crashed else None)
