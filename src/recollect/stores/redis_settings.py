"""What the engine at hand gives: its persistence settings as a policy, and what can be promised with them.

Read at open and again on every new connection, because an engine that was restarted may have other settings. Nothing is
changed, ever: a setting that does not suffice is named, together with the way to change it that loses nothing.
"""

from dataclasses import dataclass

from recollect.errors import CannotOpen, DurabilityUnavailable, EngineUnavailable
from recollect.store import Durability, Options
from recollect.stores.redis_wire import Reply, ReplyError, pack

_CONFIG = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
)
QUESTIONS = pack("INFO") + b"".join(pack("CONFIG", "GET", name) for name in _CONFIG)
QUESTIONS_COUNT = 1 + len(_CONFIG)

AOF_ON_SAFELY = (
    "switch the AOF on in the running engine (CONFIG SET appendonly yes), wait until INFO persistence says "
    "aof_rewrite_in_progress:0 and aof_last_bgrewrite_status:ok, and only then write it into redis.conf; "
    "restarting with a bare `appendonly yes` starts empty"
)

# Redis 7.4.0 to 7.4.2 answer WAITAOF before the fsync under everysec (redis/redis pull request 13793).
_WAITAOF_EARLY = ((7, 4, 0), (7, 4, 2))

_LOSS = {
    "none": "this engine keeps nothing on disk: everything is lost when it stops",
    "rdb": "everything since the last snapshot is lost when the engine dies (minutes to an hour by default)",
    "aof-no": "power loss can take about the last 30 seconds, back to the kernel's last write-back",
    "aof-everysec": "about the last second can be lost on power loss, or when the engine dies while an fsync is slow",
    "mixed": "about the last second can be lost on power loss, or when the engine dies while an fsync is slow",
    "unknown": "the engine does not tell its persistence settings (CONFIG is refused): cannot tell what it keeps",
}


@dataclass(frozen=True)
class Settings:
    """The engine's answers, read once."""

    name: str
    """`redis` or `valkey`."""
    version: tuple[int, ...]
    policy: str
    fsync_pauses: bool
    """`no-appendfsync-on-rewrite yes`: no fsync while a snapshot or a rewrite runs."""
    maxmemory: int
    eviction: str
    replicas: int
    """Connected now."""

    @property
    def durability(self) -> Durability:
        if self.policy == "aof-always":
            return Durability.WRITTEN if self.fsync_pauses else Durability.FSYNCED
        return Durability.WRITTEN if self.policy == "aof-no" else Durability.BUFFERED

    @property
    def has_waitaof(self) -> bool:
        """Valkey has had it always, Redis since 7.2; builds that answer too early do not count."""
        if self.name == "valkey":
            return True
        return self.version >= (7, 2) and not _WAITAOF_EARLY[0] <= self.version <= _WAITAOF_EARLY[1]


@dataclass(frozen=True)
class Plan:
    """What the store promises, and what has to follow each batch of writes to keep it."""

    durability: Durability
    replicas: int
    waits_for_disk: bool
    request: bytes
    """WAIT and WAITAOF, packed; nothing when the engine gives by itself what was asked for."""
    count: int
    """Replies of the request."""
    notice: str | None

    def shortfall(self, replies: list[Reply]) -> str | None:
        """What the replies to the request say was not reached, or None."""
        if not self.count:
            return None
        for reply in replies:
            if isinstance(reply, ReplyError):
                return f"the engine refused to wait for it ({reply.text})"
        copies = replies[0] if self.replicas else 0
        if not isinstance(copies, int) or copies < self.replicas:
            return f"{copies!r} of {self.replicas} replicas acknowledged in time"
        if self.waits_for_disk:
            counts = replies[-1]
            if not isinstance(counts, list) or counts[0] != 1:
                return "the engine did not fsync in time"
        return None


def read_settings(replies: list[Reply], address: str) -> Settings:
    """The settings in the answers to `QUESTIONS`. Raises `CannotOpen` for an engine that takes no writes."""
    info = _info(replies[0], address)
    if info.get("role") == "slave":
        raise CannotOpen(
            f"{address} is a replica, which takes no writes; open its primary at "
            f"{info.get('master_host')}:{info.get('master_port')}"
        )
    config = _config(replies[1:])
    valkey = info.get("server_name") == "valkey" or "valkey_version" in info
    version = info.get("valkey_version") if valkey else info.get("redis_version")
    return Settings(
        name="valkey" if valkey else "redis",
        version=tuple(int(part) for part in (version or "0").split(".") if part.isdigit()),
        policy=_policy(config),
        fsync_pauses=config is not None and config.get("no-appendfsync-on-rewrite") == "yes",
        maxmemory=int(info.get("maxmemory", 0)),
        eviction=info.get("maxmemory_policy", "noeviction"),
        replicas=int(info.get("connected_slaves", 0)),
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
    """None when the engine refuses CONFIG, as managed services do."""
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


def plan(settings: Settings, options: Options, address: str) -> Plan:
    """How to reach what was asked for; `DurabilityUnavailable`, with the setting to change, if it cannot be."""
    asked = options.durability
    waits_for_disk = False
    durability = settings.durability
    if asked is not None and durability < asked:
        refusal = _refusal(settings, asked)
        if refusal is not None:
            raise DurabilityUnavailable(f"{address}: durability {asked.value!r} cannot be reached: {refusal}")
        waits_for_disk, durability = True, Durability.FSYNCED
    if settings.replicas < options.replicas:
        raise DurabilityUnavailable(
            f"{address}: {options.replicas} replicas asked for, {settings.replicas} connected; "
            "start the missing ones with `replicaof` this engine"
        )
    # Both waits together stay within the call's own limit, so that their short counts are seen and told.
    wait_ms = max(1, int(options.timeout_s * 1000 * (0.4 if waits_for_disk and options.replicas else 0.8)))
    request = pack("WAIT", options.replicas, wait_ms) if options.replicas else b""
    request += pack("WAITAOF", 1, 0, wait_ms) if waits_for_disk else b""
    return Plan(
        durability=durability,
        replicas=options.replicas,
        waits_for_disk=waits_for_disk,
        request=request,
        count=bool(options.replicas) + waits_for_disk,
        notice=_notice(settings, durability),
    )


def _refusal(settings: Settings, asked: Durability) -> str | None:
    """Why not, and what to change; None if WAITAOF reaches it."""
    if settings.policy == "unknown":
        return "the engine refuses CONFIG, so what it keeps cannot be told; allow CONFIG GET for this user"
    if settings.policy in ("none", "rdb"):
        return f"appendonly is no; {AOF_ON_SAFELY}; then CONFIG SET appendfsync always"
    if settings.policy == "aof-no":
        return "appendfsync is no; CONFIG SET appendfsync always (or everysec, with Redis 7.2 or Valkey)"
    if settings.has_waitaof:
        return None
    if settings.policy == "aof-always":
        return (
            "no-appendfsync-on-rewrite is yes, so nothing is fsynced while a snapshot or rewrite runs; "
            "CONFIG SET no-appendfsync-on-rewrite no"
        )
    version = ".".join(map(str, settings.version))
    why = "has no WAITAOF" if settings.version < (7, 2) else "answers WAITAOF too early (fixed in 7.4.3)"
    return f"appendfsync is everysec, and {settings.name} {version} {why}; CONFIG SET appendfsync always" + (
        "" if asked is Durability.FSYNCED else " (or no, which survives the engine's death)"
    )


def _notice(settings: Settings, durability: Durability) -> str | None:
    """One sentence for each way to lose memory with these settings."""
    losses = []
    if settings.policy == "aof-always" and settings.fsync_pauses:
        losses.append(
            "no-appendfsync-on-rewrite yes: power loss during a snapshot or a rewrite can take all written meanwhile"
        )
    elif settings.policy in _LOSS and durability is not Durability.FSYNCED:
        losses.append(f"policy {settings.policy}: {_LOSS[settings.policy]}")
    if settings.eviction != "noeviction":
        when = f"above {settings.maxmemory:,} bytes" if settings.maxmemory else "once a maxmemory is set"
        losses.append(
            f"maxmemory-policy {settings.eviction}: {when} the engine deletes memory by itself; "
            "CONFIG SET maxmemory-policy noeviction"
        )
    if not losses:
        return None
    return f"{settings.name} {'.'.join(map(str, settings.version))}: " + "; ".join(losses)
