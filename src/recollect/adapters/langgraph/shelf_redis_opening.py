"""What a shelf on Redis finds out before it writes anything: is the engine one for checkpoints, may its user do
everything, and what could be lost?

A user who may not run one of the commands would be told in the middle of somebody's graph.
"""

import asyncio
import logging

from recollect.errors import CannotOpen
from recollect.store import Options
from recollect.stores.redis.address import Address
from recollect.stores.redis.errors import is_sentinel, not_connected, sentinel_refused
from recollect.stores.redis.rights import Rights
from recollect.stores.redis.settings import QUESTIONS, QUESTIONS_COUNT, plan, read_settings
from recollect.stores.redis.wire import Wire, WireLost, connect

log = logging.getLogger("recollect")

COMMANDS = frozenset(
    {
        "COPY",
        "DEL",
        "EVALSHA",
        "EXISTS",
        "HDEL",
        "HEXISTS",
        "HGET",
        "HGETALL",
        "HINCRBY",
        "HKEYS",
        "HLEN",
        "HSET",
        "HSETNX",
        "HVALS",
        "SADD",
        "SISMEMBER",
        "SMEMBERS",
        "SREM",
        "TYPE",
        "ZADD",
        "ZCARD",
        "ZRANGE",
        "ZREM",
        "ZREVRANGEBYLEX",
        "ZSCORE",
        "SCRIPT LOAD",
        "SET",
        "UNLINK",
    }
)
"""Those of the scripts, those that the shelf and the driver send, and the two that the question itself needs."""


async def examine(address: Address, stem: str, options: Options) -> None:
    """Raises `CannotOpen`, and says what can be lost. `stem` is how all keys begin."""
    try:
        wire = await connect(address.connection(), options.timeout_s)
    except Exception as error:
        raise not_connected(error, address.shown) from error
    try:
        async with asyncio.timeout(options.timeout_s):
            await _examine(wire, address, stem, options)
    except (WireLost, TimeoutError) as error:
        raise not_connected(error, address.shown) from error
    finally:
        wire.abort()


async def _examine(wire: Wire, address: Address, stem: str, options: Options) -> None:
    answers = await wire.replies(QUESTIONS, QUESTIONS_COUNT)
    if is_sentinel(answers[0]):
        raise sentinel_refused(address.shown)
    settings = read_settings(answers, address.shown, alone=True)
    if settings.is_cluster_node:
        raise CannotOpen(
            f"{address.shown} is a node of a cluster, which checkpoints are not for; give a single primary"
        )
    rights = Rights(stem.removesuffix(":"), COMMANDS, "saver")
    rights.check(await wire.replies(rights.request, rights.count), address.shown)
    if notice := plan(settings, options, address.shown).notice:
        log.warning("%s: %s", address.shown, notice)
