"""What the user of a connection may do, found out on opening by trying.

A script that is stopped in the middle, because its user may not run one of its commands, leaves behind what it wrote
before: messages without their turn id, which each retry stores again. An engine does not tell a plain user what it may
do, so each command is tried once, all in one round trip, in a way that must fail: with a key of the wrong type, or
none. An engine that would allow the command answers with that failure, and nothing is written.
"""

import uuid

from recollect.errors import CannotOpen
from recollect.stores.redis.script import SCRIPTS
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.wire import Reply, ReplyError, pack

PROBE_LIFE_MS = 10_000

REQUESTS = frozenset({"SET", "GET", "SCAN", "EVAL", "EVALSHA"})
"""Commands that the store itself sends and cannot work without; `OPTIONAL` are those it can."""
OPTIONAL = frozenset(
    {
        "INFO",
        "CONFIG",
        "CLUSTER",
        "ASKING",
        "MULTI",
        "EXEC",
        "WAIT",
        "WAITAOF",
        "BGREWRITEAOF",
        "BGSAVE",
    }
)
"""Commands it can do without, or needs only in a cluster, to wait for replicas or fsyncs, or to rewrite files."""
COMMANDS = REQUESTS.union(*(script.commands for script in SCRIPTS))
"""Commands that every store needs: its own, and those of its scripts."""

_AT_A_STRING: dict[str, tuple[str | int, ...]] = {
    "GET": (),
    "EXISTS": (),
    "TYPE": (),
    "RPUSH": ("x",),
    "LLEN": (),
    "LINDEX": (0,),
    "LRANGE": (0, 0),
    "LSET": (0, "x"),
    "LREM": (1, "x"),
    "HMGET": ("x",),
    "HGET": ("x",),
    "HGETALL": (),
    "HVALS": (),
    "HEXISTS": ("x",),
    "HSET": ("x", "x"),
    "HSETNX": ("x", "x"),
    "HDEL": ("x",),
    "HINCRBY": ("x", 1),
    "HLEN": (),
    "HKEYS": (),
    "SADD": ("x",),
    "SREM": ("x",),
    "SISMEMBER": ("x",),
    "SMEMBERS": (),
    "ZADD": (1, "x"),
    "ZREM": ("x",),
    "ZCARD": (),
    "ZRANGE": (0, 0),
    "ZREVRANGEBYLEX": ("+", "-"),
    "ZREMRANGEBYRANK": (0, 0),
    "ZSCORE": ("x",),
}
_AT_NOTHING: dict[str, tuple[str | int, ...]] = {"PERSIST": (), "PEXPIREAT": (1,), "DEL": ()}
_AT_NO_KEY: dict[str, tuple[str | int, ...]] = {
    "TIME": (),
    "SCAN": (0, "COUNT", 1),
    "EVAL": ("return 1", 0),
    "EVALSHA": ("0" * 40, 0),
    "SCRIPT LOAD": ("return 1",),
    "WAIT": (0, 1),
    "WAITAOF": (0, 0, 1),
}


def needed_for(plan: DurabilityPlan) -> frozenset[str]:
    """What a store with this durability needs."""
    waits = {"WAIT"} if plan.replicas else set()
    return COMMANDS | waits | ({"WAITAOF"} if plan.waits_for_disk else set())


class Rights:
    """The question, and what its answers mean. `who` needs these commands, on keys that begin with the prefix."""

    def __init__(self, prefix: str, commands: frozenset[str], who: str = "store") -> None:
        string, nothing = (f"{prefix}:rights:{uuid.uuid4().hex}" for _ in range(2))
        tries: dict[str, tuple[str | int, ...]] = {
            **{command: (string, *rest) for command, rest in _AT_A_STRING.items()},
            **{command: (nothing, *rest) for command, rest in _AT_NOTHING.items()},
            **_AT_NO_KEY,
            "COPY": (nothing, nothing),
        }
        begin, end = ("SET", string, "1", "PX", PROBE_LIFE_MS), ("UNLINK", string)
        lacking = commands - {*tries, "SET", "UNLINK"}
        assert not lacking, f"say how to try {sorted(lacking)}"
        asked = [(name, *rest) for name, rest in tries.items() if name in commands]
        self._prefix, self._who = prefix, who
        sent: list[tuple[str | int, ...]] = [begin, *asked, end]
        self._names = [str(name) for name, *_ in sent]
        self.request = b"".join(pack(*str(name).split(), *rest) for name, *rest in sent)
        self.count = len(sent)

    def check(self, replies: list[Reply], address: str) -> None:
        """Raises `CannotOpen` with what is missing."""
        missing: list[str] = []
        keys_denied = False
        for name, reply in zip(self._names, replies, strict=True):
            if not isinstance(reply, ReplyError):
                continue
            if reply.text.startswith("ERR unknown command"):
                raise CannotOpen(
                    f"{address} does not know {name}: it is too old, or `rename-command` took it away"
                )
            if reply.code == "NOPERM":
                if "access" in reply.text:  # the command is allowed, its key is not
                    keys_denied = True
                else:
                    missing.append(name)
        if not missing and not keys_denied:
            return
        commands = [f"+{name.lower().replace(' ', '|')}" for name in missing]
        granted = " ".join([f"~{self._prefix}:*"] * keys_denied + commands)
        told = " and ".join(
            [f"run {', '.join(missing)}"] * bool(missing) + [f"use the keys {self._prefix}:*"] * keys_denied
        )
        raise CannotOpen(
            f"{address}: its user may not {told}, which the {self._who} needs: ACL SETUSER … {granted}"
        )
