"""`recollect audit URL --target NAME`: what can be told about a store that has no sequences.

Its sessions are listed by the engine, or given; each is read with the store's own read method and judged by
`recollect.audit.conversation`, and by the number of rows that the engine has for it. As in an audit of our own stores,
what is wrong is reported only if a second reading finds it too.

What a store raises is `unreadable` only if its engine answers and other sessions can be read: a store that cannot read
anything is more likely the wrong one than a broken one.
"""

from __future__ import annotations

import inspect
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from recollect.audit.auditing import KEPT_MAX, settings_of
from recollect.audit.conversation import judged, text_bytes
from recollect.audit.finding import AuditFinding
from recollect.audit.pace import Pace
from recollect.audit.report import AuditReport
from recollect.audit.resuming import AuditProgress
from recollect.errors import CannotOpen, EngineUnavailable, RecollectError, Refused, Unreadable
from recollect.printable import counted
from recollect.secret import Scrubber, check_address, shown
from recollect.verify.auditing.existing import answers, engine_at, existing
from recollect.verify.auditing.statements import REFUSED
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.registry import row_of
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import FactoryRaised, Target, resolve, sessions_of

Told = Callable[[AuditProgress, int | None], None]
Listed = dict[str, int | None]
"""Sessions, and how many rows the engine has for each, if that is known."""
WRITES = (REFUSED, "read-only transaction")
"""What an engine says when the gate has kept a store from writing."""


class ReadRaised(Exception):
    """The store's read method raised; the message is one line."""


@dataclass
class _TargetAudit:
    target: Target
    endpoint: Endpoint
    listed: Callable[[], Any]
    pace: Pace
    told: Told
    scrub: Scrubber
    progress: AuditProgress = field(default_factory=lambda: AuditProgress(identity=None, place="", cursor=""))
    readable: int = 0
    raised: str = ""
    """What the first read that raised said."""

    async def run(self, sessions: Listed) -> None:
        short = []
        for session, rows in sessions.items():
            found = await self._judged(session)
            if found is None:
                continue
            findings, count = found
            if self._short(count, rows):
                short.append(session)
            elif count == 0 and not findings:
                findings = [_about("empty", session, "it is listed, and a read returns nothing")]
            for finding in findings:
                self._keep(finding)
            self.told(self.progress, len(sessions))
        if sessions and not self.readable:
            raise Unreadable(f"none of {counted(len(sessions), 'session')} can be read: {self.raised}")
        for finding in await self._hidden(short):
            self._keep(finding)
        for finding in _checked(self.endpoint):
            self._keep(finding)

    async def _judged(self, session: str) -> tuple[list[AuditFinding], int] | None:
        """What is wrong with the session, confirmed by a second reading, and how many messages a read returned."""
        try:
            items = await self._read(session)
            self.readable += 1
            self.progress.sessions += 1
            self.progress.messages += len(items)
            self.progress.bytes += text_bytes(items)
            found = self._findings(session, items)
            if found:
                again = {one.key for one in self._findings(session, await self._read(session))}
                found = [one for one in found if one.key in again]
        except ReadRaised as error:
            return await self._unreadable(session, str(error)), 1
        finally:
            await self.target.let_go(session)
        return found, len(items)

    async def _unreadable(self, session: str, said: str) -> list[AuditFinding]:
        self.raised = self.raised or said
        if any(word in said for word in WRITES):
            raise Refused(f"the store writes when it reads, and an audit does not let it: {said}")
        try:
            await self._read(session)
        except ReadRaised:
            if not answers(self.endpoint):
                raise EngineUnavailable(f"the engine stopped answering: {said}") from None
            self.progress.sessions += 1
            return [_about("unreadable", session, f"a read raises {said}")]
        return []

    async def _read(self, session: str) -> list[Any]:
        try:
            items, _ = await self.target.read(session, None, None)
        except (Exception, SystemExit) as error:  # whatever somebody's store raises
            raise ReadRaised(_line(self.scrub, error)) from error
        await self.pace.spend(len(items))
        return items

    def _findings(self, session: str, items: list[Any]) -> list[AuditFinding]:
        return judged(session, items, time.time(), window=self.target.keeps_last)

    def _short(self, count: int, rows: int | None) -> bool:
        if rows is None:
            return False
        return count < min(rows, self.target.keeps_last or rows)

    async def _hidden(self, sessions: list[str]) -> list[AuditFinding]:
        """Sessions that were short are read once more, between two lists: what shrank meanwhile is not short."""
        if not sessions:
            return []
        before = await _collected(self.listed())
        counts = {}
        for session in sessions:
            try:
                counts[session] = len(await self._read(session))
            except ReadRaised:
                continue
            finally:
                await self.target.let_go(session)
        after = await _collected(self.listed())
        found = []
        for session, count in counts.items():
            rows = min(before.get(session) or 0, after.get(session) or 0)
            if self._short(count, rows):
                said = (
                    f"the engine has {rows:,} rows, and a read returns {count:,} messages, without an error"
                )
                found.append(_about("hidden", session, said))
        return found

    def _keep(self, finding: AuditFinding) -> None:
        counts = self.progress.counts
        counts[finding.name] = counts.get(finding.name, 0) + 1
        if counts[finding.name] <= KEPT_MAX:
            self.progress.findings.append(finding)


async def audit_target(
    url: str,
    spec: str,
    *,
    sessions: Iterable[str] | None = None,
    rate: float | None = None,
    timeout_s: float = 10.0,
    told: Told = lambda progress, total: None,
) -> AuditReport:
    """Reads an existing database through somebody's store, and reports what is wrong.

    `spec` is a released store by name, or ``package.module:factory``. `sessions` are the ids to read; without it they
    are listed by the ``sessions(endpoint)`` that belongs to the target.
    """
    started = time.monotonic()
    check_address(url)
    _check_engine(url, spec)
    scrub = Scrubber((url,))
    async with existing(url, timeout_s) as endpoint:
        listed = await _listed(spec, endpoint, sessions, url)
        run = await _opened(spec, endpoint, sessions, Pace(rate), told, scrub)
        try:
            await run.run(listed)
        finally:
            await run.target.close()
        progress = run.progress
    row = row_of(spec)
    return AuditReport(
        address=shown(url),
        engine=endpoint.engine,
        identity=None,
        target=spec,
        target_version="" if row is None else row.released,
        sessions=progress.sessions,
        messages=progress.messages,
        bytes=progress.bytes,
        elapsed_s=round(time.monotonic() - started, 3),
        findings=tuple(sorted(progress.findings, key=lambda one: (one.level, one.name, one.session or ""))),
        counts=dict(sorted(progress.counts.items())),
        settings=await settings_of(url, timeout_s),
    )


def _check_engine(url: str, spec: str) -> None:
    row, engine = row_of(spec), engine_at(url)
    if row is not None and row.kind != engine:
        raise Refused(f"{spec} keeps its memory in {row.kind}, and {shown(url)} is {engine}")


async def _listed(spec: str, endpoint: Endpoint, sessions: Iterable[str] | None, url: str) -> Listed:
    """Called before a store is made: it would create its own tables and be empty, instead of in the wrong place."""
    try:
        resolve(spec)
        if sessions is not None:
            return dict.fromkeys(sessions)
        lister = sessions_of(spec)
        if lister is None:
            raise Refused(
                f"{spec} cannot list its sessions: give their ids with --sessions FILE, one on each line, or write "
                "sessions(endpoint) beside the factory"
            )
        return await _collected(lister(endpoint))
    except BadTarget as error:
        raise Refused(str(error)) from None
    except CannotOpen as error:
        raise CannotOpen(f"{shown(url)}: {error}") from None
    except RecollectError:
        raise
    except Exception as error:  # whatever somebody's lister raises
        said = _line(Scrubber((url,)), error)
        raise Unreadable(f"{shown(url)}: its sessions cannot be listed: {said}") from error


async def _collected(listing: Any) -> Listed:
    """Ids, or ids with numbers of rows; listed at once, or one by one."""
    if inspect.isawaitable(listing):
        listing = await listing
    if isinstance(listing, AsyncIterator):
        listing = [one async for one in listing]
    pairs = [one if isinstance(one, tuple) else (one, None) for one in listing]
    return {str(session): rows for session, rows in pairs}


async def _opened(
    spec: str, endpoint: Endpoint, sessions: Iterable[str] | None, pace: Pace, told: Told, scrub: Scrubber
) -> _TargetAudit:
    row = row_of(spec)
    target = Target(row.reading if row is not None and row.reading else spec, endpoint)
    try:
        await target.open()
    except BadTarget as error:
        raise Refused(str(error)) from None
    except FactoryRaised as error:
        said = scrub(str(error))
        if any(word in said for word in WRITES):
            said += "; it can only be opened by writing, and an audit does not let it"
        raise CannotOpen(said) from None
    lister = sessions_of(spec)

    def listed() -> Any:
        return dict.fromkeys(sessions or ()).items() if lister is None else lister(endpoint)

    return _TargetAudit(target, endpoint, listed, pace, told, scrub)


def _checked(endpoint: Endpoint) -> list[AuditFinding]:
    """What SQLite itself finds in the file: indexes against rows, and rows that refer to nothing."""
    if endpoint.path is None:
        return []
    with closing(sqlite3.connect(endpoint.path)) as connection:
        try:
            lines = [str(line) for (line,) in connection.execute("PRAGMA integrity_check")]
            loose = connection.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.Error as error:
            return [AuditFinding(name="index", sentence=str(error))]
    found = [
        AuditFinding(name="index", sentence=" ".join(line.split())[:200]) for line in lines if line != "ok"
    ]
    return found + [
        AuditFinding(
            name="orphaned",
            sentence=f"row {row} of {table} belongs to a row of {parent} that is not there",
            first=row,
        )
        for table, row, parent, _ in loose
    ]


def _about(name: str, session: str, sentence: str) -> AuditFinding:
    return AuditFinding(name=name, session=session, sentence=sentence)


def _line(scrub: Scrubber, error: BaseException) -> str:
    if isinstance(error, FactoryRaised | RecollectError):
        return scrub(" ".join(str(error).split()))[:300]
    return scrub(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]
