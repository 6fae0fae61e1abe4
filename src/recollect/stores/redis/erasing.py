"""Deletes a session, and makes the engine rewrite its files, so that they no longer hold what was deleted.

The append-only file keeps every command until it is rewritten; a snapshot keeps what was there when it was made. A
rewrite or save that started before the deletion does not count, so its end is waited for first.

The deletion leaves a trace (`recollect.erasure`) in a sorted set of the engine, in the same step.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from recollect.erasure import TRACE_LIFE, TRACES_MAX, Unreached, used_again
from recollect.stores.redis.address import Address
from recollect.stores.redis.errors import write_refused
from recollect.stores.redis.script import ERASED
from recollect.stores.redis.servers import Servers
from recollect.stores.redis.slots import slot_of
from recollect.stores.redis.wire import Reply, ReplyError, pack

POLL_S = 0.02
WAIT_S = 3_600.0
"""How long the engine may take to write its files; large ones take minutes."""

Ask = Callable[[bytes, int], Awaitable[list[Reply]]]


async def erase_keys(
    servers: Servers, address: Address, trace: bytes, key: bytes, expect: int | None
) -> None:
    """Deletes the keys of a session, and leaves a trace."""
    names = address.session_keys(key)
    slot = slot_of(names[0].encode())
    kept = (TRACES_MAX, TRACE_LIFE // timedelta(microseconds=1), "" if expect is None else expect)
    keys = (address.traces_key(slot), *names)
    [reply] = await servers.ask(slot, pack("EVAL", ERASED.source, len(keys), *keys, trace, *kept), 1)
    if isinstance(reply, ReplyError):
        raise write_refused(reply)
    if reply == -1:
        raise used_again()


async def erased_ago_s(servers: Servers, address: Address, trace: bytes, slot: int) -> float | None:
    """How long ago the session of this trace was erased; None if nobody knows."""
    [reply] = await servers.ask(slot, pack("EVAL", ERASED.source, 1, address.traces_key(slot), trace), 1)
    return reply / 1_000_000 if isinstance(reply, int) else None


async def rewrite_files(ask: Ask) -> tuple[list[str], list[Unreached]]:
    """What was rewritten, and what was not."""
    reached: list[str] = []
    unreached: list[Unreached] = []
    info = await _info(ask)
    if info is None:
        return [], [Unreached("the engine's files", "this user may not ask about them (INFO)")]
    steps = []
    if info.get("aof_enabled") == "1":
        steps.append(
            ("the append-only file", "BGREWRITEAOF", "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
        )
    if await _saves(ask):
        steps.append(("the snapshot", "BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status"))
    else:
        unreached.append(
            Unreached("an old snapshot (dump.rdb)", "the engine makes none, and leaves those it finds")
        )
    for what, command, running, status in steps:
        why = await _rewritten(ask, command, running, status)
        if why is None:
            reached.append(what)
        else:
            unreached.append(Unreached(what, why))
    if info.get("connected_slaves", "0") != "0":
        unreached.append(
            Unreached("the replicas' own files", f"{info['connected_slaves']} of them write their own")
        )
    return reached, unreached


async def _saves(ask: Ask) -> bool:
    """Whether the engine makes snapshots; True if it does not say."""
    [reply] = await ask(pack("CONFIG", "GET", "save"), 1)
    return not (isinstance(reply, list) and len(reply) == 2 and reply[1] == b"")


async def _rewritten(ask: Ask, command: str, running: str, status: str) -> str | None:
    """Why the file was not rewritten; None if it was."""
    deadline = time.monotonic() + WAIT_S
    while True:
        if not await _idle(ask, deadline):
            return "the engine is busy writing another file; erase again"
        [reply] = await ask(pack(command), 1)
        if not isinstance(reply, ReplyError):
            break
        if "in progress" not in str(reply) and "background" not in str(reply).lower():
            return f"{command} was refused: {str(reply)[:120]}"
    if not await _idle(ask, deadline):
        return f"{command} did not end within {WAIT_S:g} s"
    info = await _info(ask) or {}
    return None if info.get(status) == "ok" else f"{command} failed; the engine's log says why"


async def _idle(ask: Ask, deadline: float) -> bool:
    """Waits until the engine is no longer writing a file in the background."""
    busy = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    while time.monotonic() < deadline:
        info = await _info(ask)
        if info is None or not any(info.get(name, "0") != "0" for name in busy):
            return info is not None
        await asyncio.sleep(POLL_S)
    return False


async def _info(ask: Ask) -> dict[str, str] | None:
    replies = await ask(pack("INFO", "persistence") + pack("INFO", "replication"), 2)
    lines: dict[str, str] = {}
    for reply in replies:
        if not isinstance(reply, bytes):
            return None
        pairs = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
        lines |= {name: value for name, _, value in pairs}
    return lines
