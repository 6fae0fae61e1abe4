"""What the saver's user may do on Redis, tried on opening: see `recollect.stores.redis.rights`.

A user who may not run one of the commands would be told in the middle of somebody's graph.
"""

from typing import Any

from redis import exceptions

from recollect.stores.redis.rights import Rights
from recollect.stores.redis.wire import ReplyError

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


async def check_rights(redis: Any, prefix: str, address: str) -> None:
    """Raises `CannotOpen` with what is missing. One round trip."""
    rights = Rights(prefix, COMMANDS, "saver")
    pipeline = redis.pipeline(transaction=False)
    for name, *rest in rights.tries:
        pipeline.execute_command(*str(name).split(), *rest)
    answers = await pipeline.execute(raise_on_error=False)
    rights.check([_as_sent(answer) for answer in answers], address)


def _as_sent(answer: Any) -> Any:
    """The driver takes the code from an error's text."""
    if not isinstance(answer, exceptions.ResponseError):
        return answer
    code = "NOPERM" if isinstance(answer, exceptions.NoPermissionError) else "ERR"
    return ReplyError(f"{code} {answer}")
