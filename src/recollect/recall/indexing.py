"""Keeps an index in step with the rows, and knows whether it can be trusted.

The index follows the rows in the background, in batches. Rows that it does not have yet are read and compared one by
one by each search; so a search right after a `remember`, by any process, is complete, and remembering never waits for
the index.

On opening, and whenever the index fails, it is checked. It must carry these rows in this space; it is caught up; then
it must have as many vectors as there are rows, and the right vectors for some of them (probes). An index that fails
any of this is rebuilt from the rows, in batches, with progress. Meanwhile searches scan the rows.

Approximation is not damage. The graph of an HNSW index may leave a row out of reach although it has its vector: with
200 similar rows and Chroma's own settings, that happened in every tenth build. So what an index has is looked up by
number. Whether searches find it is judged over all probes together, compared with what they found when this index was
built. If a rebuilt index finds as little as before, that is what this data gives, and it is not rebuilt again.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

import msgspec

from recollect.erasure import Unreached
from recollect.errors import RecollectError, StoreClosed
from recollect.recall.comparing import same
from recollect.recall.index import IndexBroken, IndexMarker, Near, VectorIndex
from recollect.recall.memory import IndexState
from recollect.recall.rows import Row, Rows, Space

log = logging.getLogger("recollect")

BATCH = 500
UNSEEN_MAX = 200
"""If the index is this many rows behind, a search scans instead."""
GATHER_S = 0.02
"""How long the first new row waits for others before the index takes them in together."""
POLL_S = 1.0
"""How often to look for other processes' rows, at least."""
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 30.0
READY_POLL_S = 0.005
PROBES = 24
_RECENT = (0, 1, 10, 100, 500)
"""The newest rows are most at risk, so rows this far back are always probed."""
PROBE_EVERY = 64
"""How many searches pass between two probes of an index in use."""
DOUBTED_MAX = 100
"""How many rows that a search should have found are looked up at once."""
REACH_JUDGED_MIN = 0.5
"""An index whose searches found less than this share of the probes when it was built is not judged by them."""
REACH_MIN = 1 / 3
"""Searches must still find this share of what they found then; chance alone hardly ever takes them below it."""
_CLOSE_ENOUGH = 1e-3


class Progress(msgspec.Struct, frozen=True):
    """How far a rebuild or catch-up has come, in sequence numbers."""

    done: int
    total: int
    reason: str


class Nearest(msgspec.Struct, frozen=True):
    """What the index found, and the rows it cannot know yet."""

    near: list[Near]
    unseen: list[tuple[int, bytes]]
    """The user's rows, with their vectors, that are not in the index yet."""
    through: int
    """The number up to which it must know every row."""
    complete: bool
    """Whether it had seen every row."""


class Indexer:
    def __init__(
        self,
        rows: Rows,
        index: VectorIndex,
        space: Space,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._rows = rows
        self._index = index
        self._space = space
        self._on_progress = on_progress
        self._through = 0
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._searches = 0
        self._reach_built = 1.0
        self._awaited = 0
        self._hurry = asyncio.Event()
        """Somebody is waiting for the index, so it does not wait to gather more rows."""
        self._doubt: str | None = "opened"
        self._closed = False
        self._erasures: list[asyncio.Future[str | None]] = []
        """Futures of those waiting for a rebuild: the result is why it failed, or None."""
        self.state = IndexState.REBUILDING
        self.rebuilds = 0
        self._task = asyncio.get_running_loop().create_task(self._follow())

    # ---- for Recall

    async def nearest(self, user: bytes, vector: bytes, k: int) -> Nearest | None:
        """What the index finds, and the user's rows it has not seen; None if it cannot be trusted right now."""
        if self.state is not IndexState.READY:
            return None
        # Read before the index is asked, which has everything up to here from now on: nothing falls in between.
        through = self._through
        near, news = await asyncio.gather(
            self._index.query(user, vector, k),
            self._rows.changes(through, UNSEEN_MAX),
            return_exceptions=True,
        )
        if isinstance(news, BaseException):
            raise news
        if isinstance(near, IndexBroken):
            self.suspect(str(near))
            return None
        if isinstance(near, BaseException):
            raise near
        self._searches += 1
        if news or self._searches == PROBE_EVERY:
            self._wake.set()
        if len(news) == UNSEEN_MAX:
            return None
        unseen = [
            (each.sequence, each.vector) for each in news if each.user == user and each.vector is not None
        ]
        return Nearest(near, unseen, through, not news)

    def nudge(self) -> None:
        """Rows were written."""
        self._wake.set()

    async def short(self, sequences: Sequence[int]) -> None:
        """A search did not find these rows, which the index must know. If it does not have them, it is damaged."""
        self._searches = PROBE_EVERY  # they may just be out of reach: probe soon, in case many are
        self._wake.set()
        try:
            missing = await self._lacking(await self._known_rows(sequences[:DOUBTED_MAX]))
        except IndexBroken as error:
            self.suspect(str(error))
            return
        if missing is not None:
            self.suspect(missing)

    def suspect(self, reason: str) -> None:
        """The index does not agree with the rows: it is checked before it is used again."""
        self._doubt = reason
        self.state = IndexState.DOWN
        self._ready.clear()
        self._wake.set()

    async def ready(self) -> None:
        """Returns once the index is trusted and has every row."""
        self._awaited += 1
        self._hurry.set()
        try:
            while True:
                await self._ready.wait()
                if not await self._rows.changes(self._through, 1):
                    return
                self._wake.set()
                await asyncio.sleep(READY_POLL_S)
        finally:
            self._awaited -= 1
            if not self._awaited:
                self._hurry.clear()

    async def erase(self) -> tuple[list[str], list[Unreached]]:
        """Rebuilds the index from the rows, and says which files hold nothing old."""
        if self._closed:
            raise StoreClosed("memory")
        rebuilt: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._erasures.append(rebuilt)
        self.suspect("what was forgotten is erased from its files")
        why = await rebuilt
        if why is None:
            return self._index.erased()
        return [], [Unreached(self._index.name, f"it could not be rebuilt ({why}); erase again")]

    async def close(self) -> None:
        self._closed = True
        self._wake.set()
        await asyncio.wait([self._task])
        _tell(self._erasures, "closed")
        await self._index.close()

    # ---- in the background

    async def _follow(self) -> None:
        retry_s = RETRY_FIRST_S
        while not self._closed:
            self._wake.clear()
            try:
                if self._doubt is not None or self._erasures:
                    await self._restore(self._doubt or "")
                    retry_s = RETRY_FIRST_S
                await self._catch_up()
                if self._searches >= PROBE_EVERY:
                    self._searches = 0
                    await self._probe()
                pause_s = POLL_S
            except RecollectError as error:
                self.suspect(str(error))
                self._wake.clear()
                if self._closed:
                    return
                log.warning("the vector index is not used, searches scan the rows: %s", error)
                pause_s, retry_s = retry_s, min(retry_s * 2, RETRY_MAX_S)
            except Exception as error:
                self.suspect(f"{type(error).__name__}: {error}")
                log.exception("the vector index failed unexpectedly; searches scan the rows")
                self._wake.clear()
                pause_s, retry_s = retry_s, min(retry_s * 2, RETRY_MAX_S)
            await self._wait(pause_s)

    async def _wait(self, timeout_s: float) -> None:
        if await _came(self._wake, timeout_s) and not self._closed and self._doubt is None:
            await _came(self._hurry, GATHER_S)

    async def _restore(self, reason: str) -> None:
        """Makes the index trustworthy again; builds a new one if somebody wants the old contents erased."""
        self.state = IndexState.REBUILDING
        waiting, self._erasures = self._erasures, []
        try:
            if waiting:
                await self._rebuild("what was forgotten is erased from its files")
            else:
                await self._check_or_rebuild(reason)
        except Exception as error:
            _tell(waiting, f"{type(error).__name__}: {error}")
            raise
        _tell(waiting, None)
        self._doubt = None
        self.state = IndexState.READY
        self._ready.set()

    async def _check_or_rebuild(self, reason: str) -> None:
        marker = await self._index.open()
        if marker is not None and not self._ours(marker):
            reason, marker = "it belongs to other rows or another embedder", None
        elif marker is None:
            reason = "there is none that can be trusted"
        if marker is not None:
            self._through = marker.through
            await self._catch_up(reason="behind")
            wrong = await self._what_is_wrong()
            if wrong is not None:
                reason, marker = wrong, None
        if marker is None:
            await self._rebuild(reason)

    def _ours(self, marker: IndexMarker) -> bool:
        return (marker.rows, marker.space, marker.dimension) == (
            self._rows.identity,
            self._space.number,
            self._space.dimension,
        )

    async def _rebuild(self, reason: str) -> None:
        last, count = await self._rows.totals()
        if count:
            log.info("rebuilding the vector index from %d rows: %s", count, reason)
            self.rebuilds += 1
        self._through = 0
        await self._index.reset(self._marker(0))
        await self._catch_up(reason=reason, total=last)
        await self._index.complete()
        wrong = await self._wrong_number() or await self._lacking(probes := await self._probes(PROBES))
        if wrong is not None:
            raise IndexBroken(f"rebuilt, and still wrong: {wrong}")
        self._reach_built = await self._reach(probes)
        if self._reach_built < REACH_JUDGED_MIN:
            log.warning("searches of the vector index find %.0f %% of its rows", 100 * self._reach_built)
            self._reach_built = 0.0

    def _marker(self, through: int) -> IndexMarker:
        return IndexMarker(self._rows.identity, self._space.number, self._space.dimension, through)

    async def _catch_up(self, reason: str | None = None, total: int | None = None) -> None:
        """Takes in all pending changes, a batch at a time."""
        while not self._closed:
            changes = await self._rows.changes(self._through, BATCH)
            if not changes:
                return
            await self._index.apply(changes, self._marker(changes[-1].at))
            self._through = changes[-1].at
            if reason is not None and self._on_progress is not None:
                if total is None:
                    total = (await self._rows.totals())[0]
                self._on_progress(Progress(self._through, max(total, self._through), reason))
            if len(changes) < BATCH:
                return
        if reason is not None:
            raise IndexBroken("closed before the index was caught up")

    # ---- checking

    async def _what_is_wrong(self) -> str | None:
        return await self._wrong_number() or await self._unsound()

    async def _wrong_number(self) -> str | None:
        last, expected = await self._rows.totals()
        found = await self._index.count()
        if found != expected and self._through >= last:
            return f"it has {found} vectors, the rows are {expected}"
        return None

    async def _probe(self) -> None:
        """Probes one row now and then; many, if that one is not found."""
        few = await self._probes(1)
        wrong = await self._lacking(few)
        if wrong is None and await self._reach(few) < 1:
            wrong = await self._unsound()
        if wrong is not None:
            raise IndexBroken(wrong)

    async def _unsound(self) -> str | None:
        """What is wrong, judged by some of the rows: vectors are missing, or searches find too few of them."""
        probes = await self._probes(PROBES)
        missing = await self._lacking(probes)
        if missing is not None:
            return missing
        reach = await self._reach(probes)
        if reach < REACH_MIN * self._reach_built:
            return f"searches find {reach:.0%} of its rows, {self._reach_built:.0%} when it was built"
        return None

    async def _probes(self, points: int) -> list[Row]:
        if not self._through:
            return []
        numbers = [random.randint(1, self._through) for _ in range(points)]
        numbers += [max(1, self._through - back) for back in _RECENT[:points]]
        return await self._known_rows(numbers)

    async def _known_rows(self, numbers: Sequence[int]) -> list[Row]:
        """The first row at or after each number, each once; only rows that the index must have."""
        through = self._through
        rows = {row.sequence: row for row in await self._rows.sample(numbers)}
        return [row for row in rows.values() if row.sequence <= through]

    async def _lacking(self, rows: Sequence[Row]) -> str | None:
        """Which of these rows is missing from the index, or has another vector there."""
        if not rows:
            return None
        kept = await self._index.vectors([row.sequence for row in rows])
        for row in rows:
            if same(kept.get(row.sequence, b""), row.vector):
                continue
            if await self._rows.fetch(row.user, [row.sequence]):  # not forgotten meanwhile
                return f"the vector of row {row.sequence} is not in it"
        return None

    async def _reach(self, rows: Sequence[Row]) -> float:
        """The share of these rows that a search with their own vectors finds; another row just as near counts too."""
        found = 0
        for row in rows:
            near = await self._index.query(row.user, row.vector, 10)
            found += any(hit.sequence == row.sequence or hit.score > 1 - _CLOSE_ENOUGH for hit in near)
        return found / len(rows) if rows else 1.0


def _tell(waiting: list[asyncio.Future[str | None]], why: str | None) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(why)


async def _came(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
