"""The engine's persistence settings as a policy, and what can be promised with them.

Read on opening and again on every new connection, because an engine that was restarted may have other settings.
Settings are never changed: one that is not enough is named, with a way to change it that loses nothing.
"""

import asyncio
from dataclasses import dataclass

from recollect.errors import CannotOpen, DurabilityUnavailable, EngineUnavailable
from recollect.guarantees import what_can_be_lost
from recollect.printable import counted
from recollect.store import Durability, Options
from recollect.stores.redis.fsync import FSYNC_INTERVAL_S
from recollect.stores.redis.wire import Reply, ReplyError, Wire, pack

_CONFIG = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
)
QUESTIONS = pack("INFO") + b"".join(pack("CONFIG", "GET", name) for name in _CONFIG)
QUESTIONS_COUNT = 1 + len(_CONFIG)

WAITAOF_TIMEOUT_LEAST_S = 3.0

AOF_ON_SAFELY = (
    "switch the AOF on in the running engine (CONFIG SET appendonly yes), wait until INFO persistence says "
    "aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok, and only then write it into redis.conf; "
    "restarting with a bare `appendonly yes` starts empty"
)


@dataclass(frozen=True)
class RedisSettings:
    """The engine's answers, read once."""

    name: str
    """`redis` or `valkey`."""
    version: tuple[int, ...]
    run: str
    policy: str
    aof_begins: bool
    """The AOF was just switched on: until its first rewrite ends, a crash loses what the snapshot does not hold."""
    fsync_pauses: bool
    """`no-appendfsync-on-rewrite yes`: no fsync while a snapshot or a rewrite runs."""
    maxmemory: int
    eviction: str
    replicas: int
    """Connected now."""
    is_cluster_node: bool

    @property
    def durability(self) -> Durability:
        if self.aof_begins:
            return Durability.BUFFERED
        if self.policy == "aof-always":
            return Durability.WRITTEN if self.fsync_pauses else Durability.FSYNCED
        return Durability.WRITTEN if self.policy == "aof-no" else Durability.BUFFERED

    @property
    def waits_for_disk(self) -> bool:
        """Whether WAITAOF works: Redis since 7.2, Valkey always; and there must be an fsync to wait for."""
        known = self.name == "valkey" or self.version >= (7, 2)
        return (
            known
            and self.policy in ("aof-everysec", "mixed")
            and not self.aof_begins
            and not self.fsync_pauses
        )

    @property
    def build(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


@dataclass(frozen=True)
class DurabilityPlan:
    """What the store promises, and what it must send after each batch of writes to keep that promise."""

    durability: Durability
    replicas: int
    waits_for_disk: bool
    request: bytes
    """WAIT and WAITAOF, packed; empty if the engine gives what was asked for by itself."""
    count: int
    """How many replies the request has."""
    notice: str | None
    watches: bool = False
    """WAITAOF answers early here: the fsync is watched for after it."""

    def shortfall(self, replies: list[Reply]) -> str | None:
        """What was not reached according to the replies, or None."""
        if not self.count:
            return None
        for reply in replies:
            if isinstance(reply, ReplyError):
                return f"the engine refused to wait for it ({reply.text})"
        copies = replies[0] if self.replicas else 0
        if not isinstance(copies, int) or copies < self.replicas:
            return f"{copies!r} of {counted(self.replicas, 'replica')} acknowledged in time"
        if self.waits_for_disk:
            counts = replies[-1]
            if not isinstance(counts, list) or counts[0] != 1:
                return "the engine did not fsync in time"
        return None


def read_settings(replies: list[Reply], address: str, *, alone: bool) -> RedisSettings:
    """The settings in the answers to `QUESTIONS`. Raises `CannotOpen` for an engine that takes no writes; one of
    several (not `alone`) is `EngineUnavailable` then, because another one has taken over."""
    info = _info(replies[0], address)
    if info.get("role") == "slave" and not alone:
        raise EngineUnavailable(f"{address} is a replica now")
    in_cluster = info.get("cluster_enabled") == "1"
    if info.get("role") == "slave" and in_cluster:
        raise one_node(address, "open")
    if info.get("role") == "slave":
        raise CannotOpen(
            f"{address} is a replica, which takes no writes; open its primary at "
            f"{info.get('master_host')}:{info.get('master_port')}"
        )
    config = _config(replies[1:])
    valkey = info.get("server_name") == "valkey" or "valkey_version" in info
    version = info.get("valkey_version") if valkey else info.get("redis_version")
    return RedisSettings(
        name="valkey" if valkey else "redis",
        version=tuple(int(part) for part in (version or "0").split(".") if part.isdigit()),
        run=info.get("run_id", ""),
        policy=_policy(config),
        aof_begins=info.get("aof_base_size") == "0"
        and (
            info.get("aof_rewrite_in_progress") == "1"
            or info.get("aof_rewrite_scheduled") == "1"
            or info.get("aof_last_bgrewrite_status") == "err"
        ),
        fsync_pauses=config is not None and config.get("no-appendfsync-on-rewrite") == "yes",
        maxmemory=int(info.get("maxmemory", 0)),
        eviction=info.get("maxmemory_policy", "noeviction"),
        replicas=int(info.get("connected_slaves", 0)),
        is_cluster_node=in_cluster,
    )


def has_every_slot(reply: Reply) -> bool:
    """Whether this answer to CLUSTER INFO comes from a cluster with a single primary."""
    wanted = (b"cluster_size:1\r", b"cluster_slots_assigned:16384\r")
    return isinstance(reply, bytes) and all(line in reply for line in wanted)


async def check_has_every_slot(wire: Wire, address: str) -> None:
    """Refuses one node of a cluster: it would take some sessions and refuse the rest for ever."""
    [reply] = await wire.replies(pack("CLUSTER", "INFO"), 1)
    if not has_every_slot(reply):
        raise one_node(address, "open")


def one_node(address: str, verb: str) -> CannotOpen:
    """The refusal of one node of a cluster; `verb` is what the caller was asked to do."""
    whole = address.replace("://", "+cluster://", 1)
    return CannotOpen(
        f"{address} is one node of a cluster and has only a part of the sessions; {verb} the cluster: {whole}"
    )


def _info(reply: Reply, address: str) -> dict[str, str]:
    if isinstance(reply, ReplyError) and reply.code in ("LOADING", "BUSY", "MASTERDOWN"):
        raise EngineUnavailable(f"{address} is up but not ready: {reply.text}")
    if isinstance(reply, ReplyError) and reply.code == "NOPERM":
        return {}
    if not isinstance(reply, bytes):
        raise CannotOpen(f"{address} does not answer INFO as Redis does: {reply}")
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _config(replies: list[Reply]) -> dict[str, str] | None:
    """None if the engine refuses CONFIG, as managed services do."""
    config: dict[str, str] = {}
    for reply in replies:
        if not isinstance(reply, list):
            return None
        texts = [item.decode("utf-8", "replace") for item in reply if isinstance(item, bytes)]
        config.update(zip(texts[::2], texts[1::2], strict=True))
    return config


def _policy(config: dict[str, str] | None) -> str:
    if config is None or "appendonly" not in config:
        return "unknown"
    if config["appendonly"] != "yes":
        return "rdb" if config.get("save") else "none"
    if config.get("appendfsync") == "everysec" and config.get("save"):
        return "mixed"
    return f"aof-{config.get('appendfsync', 'everysec')}"


def plan(settings: RedisSettings, options: Options, address: str) -> DurabilityPlan:
    """How to reach what was asked for; `DurabilityUnavailable`, with the setting to change, if it cannot be."""
    asked, durability = options.durability, settings.durability
    waits_for_disk = asked is not None and durability < asked
    if asked is not None and waits_for_disk:
        if not settings.waits_for_disk:
            raise unreachable(address, asked, _why_not(settings))
        if options.timeout_s < WAITAOF_TIMEOUT_LEAST_S:
            raise unreachable(
                address,
                asked,
                f"appendfsync is everysec, so an acknowledgement takes up to two seconds: give timeout_s at least "
                f"{WAITAOF_TIMEOUT_LEAST_S:g}, not {options.timeout_s:g}, or CONFIG SET appendfsync always",
            )
        durability = Durability.FSYNCED
    if settings.replicas < options.replicas:
        raise DurabilityUnavailable(
            f"{address}: {counted(options.replicas, 'replica')} asked for, {settings.replicas} connected; "
            "start the missing ones with `replicaof` this engine"
        )
    # Both waits together stay within the call's own limit, so that a count that falls short is seen and reported.
    wait_ms = max(1, int(options.timeout_s * 1000 * (0.4 if waits_for_disk and options.replicas else 0.8)))
    request = pack("WAIT", options.replicas, wait_ms) if options.replicas else b""
    request += pack("WAITAOF", 1, 0, wait_ms) if waits_for_disk else b""
    return DurabilityPlan(
        durability=durability,
        replicas=options.replicas,
        waits_for_disk=waits_for_disk,
        request=request,
        count=bool(options.replicas) + waits_for_disk,
        notice=_notice(settings, durability),
    )


def unreachable(address: str, asked: Durability, why: str) -> DurabilityUnavailable:
    return DurabilityUnavailable(f"{address}: durability {asked.value!r} cannot be reached: {why}")


def _why_not(settings: RedisSettings) -> str:
    """The setting that prevents it, and how to change it."""
    if settings.policy == "unknown":
        return (
            "the engine refuses CONFIG, so there is no telling what it keeps; allow CONFIG GET for this user"
        )
    if settings.policy in ("none", "rdb"):
        return f"appendonly is no; {AOF_ON_SAFELY}; then CONFIG SET appendfsync always"
    if settings.aof_begins:
        return (
            "the AOF was switched on just now and its first rewrite has not ended; open the store when INFO "
            "persistence says aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok"
        )
    if settings.policy == "aof-no":
        return "appendfsync is no; CONFIG SET appendfsync always"
    if settings.fsync_pauses:
        return (
            "no-appendfsync-on-rewrite is yes, so nothing is fsynced while a snapshot or a rewrite runs; "
            "CONFIG SET no-appendfsync-on-rewrite no"
        )
    return f"appendfsync is everysec, and {settings.build} has no WAITAOF; CONFIG SET appendfsync always"


async def answers_waitaof_early(wire: Wire, write: bytes) -> bool:
    """Whether WAITAOF claims an fsync that cannot have happened: then the fsync has to be watched for (`fsync`).

    Under everysec, fsyncs are a second apart, so a write made right after one waits about a second for its own. Some
    builds answer at once, with nothing on disk (Redis 7.4.0 to 7.4.2, redis/redis pull request 13793; Valkey 9.1.2).
    This tests the engine itself instead of looking up its version. It takes two to three seconds on an honest one.
    """
    loop = asyncio.get_running_loop()
    request = write + pack("WAITAOF", 1, 0, 5000)
    for attempt in range(3):
        started = loop.time()
        _, counts = await wire.replies(request, 2)
        if attempt and counts == [1, 0] and loop.time() - started < FSYNC_INTERVAL_S / 2:
            return True
    return False


def _notice(settings: RedisSettings, durability: Durability) -> str | None:
    """The ways to lose memory with these settings, in one line."""
    ways = []
    if settings.policy == "unknown":
        ways.append("cannot tell what can be lost: the engine refuses CONFIG; allow CONFIG GET for this user")
    elif settings.aof_begins:
        ways.append("can lose everything since the last snapshot until the AOF's first rewrite has ended")
    elif settings.policy == "aof-always" and settings.fsync_pauses:
        ways.append(
            "can lose what was written during a snapshot or a rewrite, when the power fails then; what helps: "
            "`no-appendfsync-on-rewrite no`"
        )
    elif durability is not Durability.FSYNCED:
        losses = what_can_be_lost("redis", settings.policy)
        ways += [f"can lose {loss.sentence}; what helps: {loss.remedy}" for loss in losses[:1]]
    if settings.eviction != "noeviction":
        limit = f"{settings.maxmemory:,} bytes" if settings.maxmemory else "a maxmemory, once there is one"
        ways.append(
            f"maxmemory-policy {settings.eviction} can lose whole sessions, evicted above {limit}; "
            "what helps: `maxmemory-policy noeviction`"
        )
    return " · ".join(ways) if ways else None
