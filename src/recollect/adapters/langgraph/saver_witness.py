"""The witness of a saver: notices that the checkpoints were wiped, or set back to an older state.

A conversation has sequences that only grow, and a `Witness` remembers one of them. Checkpoint ids are LangGraph's own,
and all of them may be deleted. So the shelf keeps a mark beside them, raised after a change, at most once a second: a
memory whose mark is lower than the file's was set back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from recollect.adapters.langgraph.shelf import Shelf
from recollect.errors import RecollectError
from recollect.store import Options
from recollect.witness import INTERVAL_S, Witness

log = logging.getLogger("recollect")

MARKED = "langgraph"
"""What the file calls the mark."""


class SaverWitness:
    """Lives on the saver's loop. `note` is for any thread, and never waits."""

    def __init__(self, shelf: Shelf, witness: Witness) -> None:
        self._shelf = shelf
        self._witness = witness
        self._loop = asyncio.get_running_loop()
        self._raised_at = 0.0
        self._behind = False
        """Whether something was changed since the mark was raised."""
        self._raising: asyncio.Task[None] | None = None

    @classmethod
    async def check(cls, shelf: Shelf, options: Options) -> "SaverWitness | None":
        """Raises `StoreReplaced` if this is not what the file remembers. None if there is no witness."""
        if options.witness is None:
            return None
        return cls(shelf, await Witness.check(options, shelf.identity, _mark_of(shelf)))

    def note(self) -> None:
        """Called with every acknowledged change."""
        self._behind = True
        if time.monotonic() - self._raised_at >= INTERVAL_S:
            self._raised_at = time.monotonic()
            with suppress(RuntimeError):  # closed meanwhile; the change is stored
                self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._raising is None or self._raising.done():
            self._raising = self._loop.create_task(self._raise())

    async def _raise(self) -> None:
        self._behind, sent_at = False, time.monotonic()
        try:
            await self._shelf.raise_mark()
            mark = await self._shelf.mark()
        except RecollectError as error:
            self._behind = True
            log.warning(
                "the mark for the witness could not be raised (%s); it goes on with the last one", error
            )
            return
        self._witness.note(MARKED, mark, sent_at)

    async def close(self) -> None:
        if self._raising is not None:
            await asyncio.wait([self._raising])
        if self._behind:
            await self._raise()
        await self._witness.close()


def _mark_of(shelf: Shelf) -> Callable[[str], Awaitable[int]]:
    async def mark(_: str) -> int:
        return await shelf.mark()

    return mark
