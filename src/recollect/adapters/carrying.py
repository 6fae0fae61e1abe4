"""Carries changes through to the end: frameworks' interfaces have no turn ids, so every change gets one here.

A framework calls "add these" once, and gets an answer or an error. If the connection breaks in between, it cannot know
whether to call again. With a turn id it need not: the store can tell a retry from a new turn, so `OutcomeUnknown` is
tried again here under the same id, and the change is stored once. If it stays unknown, the caller is told what to do
without a turn id.

If a caller is cancelled, because its request timed out or its user left, the change is finished first, and the
cancellation is passed on after that. So whoever reads next sees all of the change or nothing, and never something that
appears later.
"""

import asyncio
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from recollect.errors import Conflict, NotFound, NotWritten, OutcomeUnknown, Unreadable
from recollect.message import Damaged, Message
from recollect.store import Receipt, Store, Stored

log = logging.getLogger("recollect")

PAUSES_S = (0.0, 0.05, 0.25, 1.0)
"""Pauses before each retry: a broken connection is often back at once, a restarting server is not."""

CALL_AGAIN = "call it again: what is done already is not done twice"
LOOK_FIRST = "look whether it is there before you add it again: a second call is another turn"

Value = TypeVar("Value")


def new_turn() -> str:
    """A unique id for one change."""
    return uuid.uuid4().hex


async def carried(change: Callable[[str], Awaitable[Value]], advice: str) -> Value:
    """The result of ``change(turn)`` with a new turn id, tried again while its outcome is unknown. `advice` is for the
    caller of the framework's method, if it stays unknown."""
    return await settled(tried(change, advice))


async def settled(work: Awaitable[Value]) -> Value:
    """Waits for the work to end even if the caller is cancelled meanwhile, then passes the cancellation on."""
    task = _started(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (failed := task.exception()) is not None:
        log.warning("a change failed after its caller was cancelled: %s", failed)
    raise cancelled


def _started(work: Awaitable[Value]) -> asyncio.Future[Value]:
    """At once, where Python can: a change that need not wait, as in SQLite, is then done without a turn of the loop."""
    if sys.version_info >= (3, 12) and asyncio.iscoroutine(work):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.ensure_future(work)


async def tried(change: Callable[[str], Awaitable[Value]], advice: str) -> Value:
    """`carried`, for a change that nobody can cancel: its caller is a thread that waits, or waits in `settled`."""
    turn = new_turn()
    try:
        return await change(turn)
    except OutcomeUnknown as error:
        return await retried(change, turn, error, advice)


async def retried(
    change: Callable[[str], Awaitable[Value]], turn: str, unknown: OutcomeUnknown, advice: str
) -> Value:
    """The result of a change that was tried once, with this unknown outcome."""
    for pause_s in PAUSES_S:
        await asyncio.sleep(pause_s)
        try:
            return await change(turn)
        except OutcomeUnknown as error:
            unknown = error
        except (Conflict, NotFound):
            raise  # the store has checked: the first try was not stored, or its id would be known
        except NotWritten:
            continue  # true of this try, but it does not say what became of the first
    raise OutcomeUnknown(unknown.reason, advice) from unknown


_STILL_THERE = "read the session, which shows whether the message is still there"


async def pop_last(store: Store, session: str) -> Message | None:
    """Removes and returns the last message of a session; concurrent callers get different ones. None if empty."""
    return await settled(_popped(store, session))


async def _popped(store: Store, session: str) -> Message | None:
    while True:
        position = await store.position(session)
        items = await store.history(session, last=1)
        if not items:
            return None
        last = items[0]
        if isinstance(last.message, Damaged):
            raise Unreadable(
                f"the last message of the session, sequence {last.sequence}, cannot be read, so it is not taken: "
                f"{last.message.reason}"
            )

        async def take(turn: str, sequence: int = last.sequence, expect: int = position) -> Receipt:
            return await store.retract(session, sequence, turn=turn, expect=expect)

        try:
            await tried(take, _STILL_THERE)
        except (Conflict, NotFound):
            continue  # somebody was faster: look again for the last one
        return last.message


def damage_note(item: Stored, damage: Damaged) -> str:
    """The text shown in place of a message that cannot be read."""
    return f"[The message at this place (sequence {item.sequence}) cannot be read: {damage.reason}]"
