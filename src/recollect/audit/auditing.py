"""`audit(url)`: is everything that was acknowledged still there? Read-only, at a bounded rate, in constant memory.

Sessions are read one after another, each in pieces, each piece from one moment (`session_reading`), while others write.
Anything wrong is reported only if a second reading of the session finds the same. Judging the engine's settings is the
doctor's job.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from recollect.audit.finding import AuditFinding
from recollect.audit.pace import Pace
from recollect.audit.report import AuditReport
from recollect.audit.resuming import AuditProgress, encode, load, save
from recollect.audit.session_reading import ErasedMeanwhile, SessionReading, half_turn
from recollect.audit.source import COPIES, AuditSource, SessionBatch, SessionRef, name_of
from recollect.doctor import Diagnosis, examine
from recollect.doctor.examination import POSTGRES, REDIS, is_several_servers
from recollect.errors import CannotOpen, MissingExtra, RecollectError, Refused
from recollect.secret import check_address, scheme_of, shown
from recollect.witness import remembered_by

RATE = 10_000.0
"""Records a second, by default."""
SAVED_EVERY_S = 2.0
READINGS_MAX = 5
"""How often to start over with a session that is erased and used again while it is read."""
KEPT_MAX = 100
"""How many findings of one name are reported in full; all are counted."""


@dataclass
class _Audit:
    source: AuditSource
    pace: Pace
    progress: AuditProgress
    told: Callable[[AuditProgress, int | None], None]
    resume: Path | None
    kept: Counter[str] = field(default_factory=Counter)
    _listed: set[AuditFinding] = field(default_factory=set)
    _since: float = field(default_factory=time.monotonic)
    _saved_at: float = field(default_factory=time.monotonic)
    _boundary: bytes | None = None
    """The progress when the last batch was complete: a batch that was interrupted is read again."""

    async def run(self) -> None:
        self._listed.update(self.progress.findings)
        for finding in self.progress.findings:
            self.kept[finding.name] += 1
        if not self.progress.sessions_done:
            async for batch in self.source.batches(self.progress.cursor):
                await self._batch(batch)
            self.progress.sessions_done = True
            self._mark()
        async for rows, findings in self.source.beside():
            for finding in findings:
                self.keep(finding)
            self.told(self.progress, self.source.total)
            await self.pace.spend(rows)
        self.progress.done = True
        self._mark()

    async def _batch(self, batch: SessionBatch) -> None:
        for finding in batch.findings:
            self.keep(finding)
        for ref in batch.sessions:
            for finding in await self._session(ref):
                self.keep(finding)
            self.told(self.progress, self.source.total)
        self.progress.cursor = batch.cursor
        self._mark()
        if time.monotonic() > self._saved_at + SAVED_EVERY_S:
            self.save()

    async def _session(self, ref: SessionRef) -> list[AuditFinding]:
        reading = await self._read(ref)
        if reading is None:
            return []
        self.progress.sessions += 1
        self.progress.messages += reading.messages
        self.progress.bytes += reading.size
        if ref.shard is not None:
            self.progress.shards[ref.shard] = self.progress.shards.get(ref.shard, 0) + 1
        found = await self._findings(ref, reading)
        if not found:
            return []
        again = await self._read(ref)
        confirmed = set() if again is None else {one.key for one in await self._findings(ref, again)}
        return [replace(finding, shard=ref.shard) for finding in found if finding.key in confirmed]

    async def _findings(self, ref: SessionRef, reading: SessionReading) -> list[AuditFinding]:
        gaps = []
        for gap in reading.gaps:
            assert gap.first is not None
            assert gap.last is not None
            gaps.append(half_turn(gap, await self.source.turns_over(ref, gap.first, gap.last)))
        return gaps + reading.findings

    async def _read(self, ref: SessionRef) -> SessionReading | None:
        """The whole session; None if it is gone."""
        for _ in range(READINGS_MAX):
            reading = SessionReading(name_of(ref.key))
            try:
                while True:
                    piece = await self.source.piece(ref, reading.cursor)
                    if piece is None:
                        return None
                    reading.take(piece)
                    await self.pace.spend(len(piece.records))
                    if piece.ended:
                        return reading
            except ErasedMeanwhile:
                continue
        return None

    def keep(self, finding: AuditFinding) -> None:
        if finding in self._listed:  # a thousand messages of one lost session are one finding
            return
        self.progress.counts[finding.name] = self.progress.counts.get(finding.name, 0) + 1
        self.kept[finding.name] += 1
        if self.kept[finding.name] <= KEPT_MAX:
            self.progress.findings.append(finding)
            self._listed.add(finding)

    def _mark(self) -> None:
        now = time.monotonic()
        self.progress.elapsed_s += now - self._since
        self._since = now
        if self.resume is not None:
            self._boundary = encode(self.progress)

    def save(self) -> None:
        """Writes where the last complete batch ended to the file, if there is one."""
        self._saved_at = time.monotonic()
        if self.resume is not None and self._boundary is not None:
            save(self.resume, self._boundary)


async def audit(
    url: str,
    *,
    rate: float | None = RATE,
    resume: Path | None = None,
    witness: Path | None = None,
    timeout_s: float = 10.0,
    told: Callable[[AuditProgress, int | None], None] = lambda progress, total: None,
) -> AuditReport:
    """Reads the whole memory at an address, and reports what is wrong.

    `rate` is in records a second; None is as fast as possible. With `resume`, an interrupted audit continues where it
    stopped. `witness` is a store's witness file, which reveals a wiped or rolled-back store. `told` is called with the
    progress and the number of sessions, if that is known.
    """
    source = await opened(url, timeout_s)
    try:
        progress = load(resume, source.identity, source.place)
        run = _Audit(source, Pace(rate), progress, told, resume)
        if witness is not None and not progress.cursor:
            for finding in await _witnessed(source, witness):
                run.keep(finding)
        try:
            await run.run()
        finally:
            run.save()
        if source.identity is None:
            await _without_identity(run, url)
    finally:
        await source.close()
    return AuditReport(
        address=shown(url),
        engine=source.engine,
        identity=source.identity,
        sessions=progress.sessions,
        messages=progress.messages,
        bytes=progress.bytes,
        elapsed_s=round(progress.elapsed_s, 3),
        findings=tuple(sorted(progress.findings, key=lambda one: (one.level, one.name, one.session or ""))),
        counts=dict(sorted(progress.counts.items())),
        settings=await settings_of(url, timeout_s),
        shards=dict(sorted(progress.shards.items())),
    )


async def _without_identity(run: _Audit, url: str) -> None:
    """What a store writes first. It may have been made since the audit began."""
    facts = await run.source.facts()
    if not run.progress.sessions and not run.progress.counts:
        raise _nothing_at(url, copy=facts.role in COPIES)
    if facts.identity is None:
        told = "sessions are there, and the store's identity is gone: evicted, or deleted by hand"
        run.keep(AuditFinding(name="replaced", sentence=told))


def _nothing_at(url: str, *, copy: bool) -> CannotOpen:
    why = "nothing was ever stored there, or it was emptied (with --witness FILE, an audit can tell)"
    if copy:
        why = "it is a copy of another server, which has nothing or from which nothing has arrived yet"
    return CannotOpen(f"there is no memory of recollect at {shown(url)}: {why}")


def check_auditable(url: str) -> None:
    """Refuses an address that no audit can read, without asking anybody."""
    check_address(url)
    scheme = scheme_of(url)
    if scheme not in (*REDIS, *POSTGRES, "sqlite") and not is_several_servers(scheme):
        raise Refused(
            f"{shown(url)} is not an address of a store; use sqlite:///file.db, redis://… or postgresql://…"
        )


async def opened(url: str, timeout_s: float) -> AuditSource:
    """The memory at the address, ready to be read."""
    scheme = scheme_of(url)
    check_auditable(url)
    try:
        if scheme.endswith("+cluster"):
            from recollect.audit.redis_cluster import ClusterAudit

            return await ClusterAudit.open(url, timeout_s)
        if scheme.endswith("+sentinel"):
            from recollect.audit.redis_sentinel import SentinelAudit

            return await SentinelAudit.open(url, timeout_s)
        if scheme in REDIS:
            from recollect.audit.redis import RedisAudit

            return await RedisAudit.open(url, timeout_s)
        if scheme in POSTGRES:
            from recollect.audit.postgres import PostgresAudit

            return await PostgresAudit.open(url, timeout_s)
        from recollect.audit.sqlite import SqliteAudit

        return await SqliteAudit.open(url, timeout_s)
    except ImportError as error:
        if isinstance(error, MissingExtra) or (error.name or "").startswith("recollect"):
            raise
        extra = "redis" if scheme.partition("+")[0] in REDIS else "postgres"
        raise MissingExtra(f"a driver is missing ({error.name}): pip install 'recollect[{extra}]'") from None


async def _witnessed(source: AuditSource, witness: Path) -> list[AuditFinding]:
    """Findings from comparing the witness file with the store as it is now."""
    remembered = remembered_by(witness)
    if remembered is None:
        raise Refused(f"{witness}: there is no such file; a store writes it when it is opened with witness=")
    identity, mark = remembered
    if identity != source.identity:
        told = f"{witness} remembers the store {identity}, this one is {source.identity}: wiped, swapped or restored"
        return [AuditFinding(name="replaced", sentence=told)]
    if mark is None:
        return []
    last = await source.position(mark.session.encode("utf-8", "surrogatepass"))
    if last >= mark.sequence:
        return []
    name, what = "replaced", "rolled back"
    if (await source.facts()).role in COPIES:
        name, what = "behind", "this copy is behind its primary, or both were rolled back; audit the primary"
    told = f"{witness} remembers sequence {mark.sequence} of this session, and it ends at {last}: {what}"
    return [AuditFinding(name=name, session=mark.session, sentence=told, first=last + 1, last=mark.sequence)]


async def settings_of(url: str, timeout_s: float) -> Diagnosis | None:
    """The doctor's diagnosis; None if there is none."""
    try:
        return await examine(url, timeout_s)
    except RecollectError:
        return None
