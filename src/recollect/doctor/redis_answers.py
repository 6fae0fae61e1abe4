"""What a Redis or Valkey server says about itself: INFO, and CONFIG GET where it is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.errors import CannotOpen
from recollect.stores.redis.wire import Reply, ReplyError, pack

ASKED = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "stop-writes-on-bgsave-error",
    "maxmemory-policy",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "dir",
    "aof-load-truncated",
)
QUESTIONS = pack("INFO") + b"".join(pack("CONFIG", "GET", name) for name in ASKED)
QUESTIONS_COUNT = 1 + len(ASKED)


@dataclass(frozen=True)
class RedisAnswers:
    """INFO, and CONFIG GET where it was allowed."""

    address: str
    info: dict[str, str]
    config: dict[str, str] | None
    refused: str
    """The engine's message when it refused CONFIG."""

    @property
    def engine(self) -> str:
        valkey = self.info.get("server_name") == "valkey" or "valkey_version" in self.info
        return "valkey" if valkey else "redis"

    @property
    def version(self) -> str:
        name = "valkey_version" if self.engine == "valkey" else "redis_version"
        return self.info.get(name, "")

    @property
    def mode(self) -> str:
        """`standalone`, `cluster` or `sentinel`."""
        return self.info.get("redis_mode") or self.info.get("server_mode", "")

    @property
    def is_sentinel(self) -> bool:
        return self.mode == "sentinel"

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def policy(self) -> str | None:
        if self.config is None:
            return None
        if self.config.get("appendonly") != "yes":
            return "rdb" if self.config.get("save") else "none"
        fsync = self.config.get("appendfsync", "everysec")
        return "mixed" if fsync == "everysec" and self.config.get("save") else f"aof-{fsync}"

    def number(self, name: str) -> int:
        value = self.info.get(name, "") or (self.config or {}).get(name, "")
        return int(value) if value.lstrip("-").isdigit() else 0


def read(shown: str, replies: list[Reply]) -> RedisAnswers:
    info: dict[str, str] = {}
    first = replies[0]
    if isinstance(first, bytes):
        lines = first.decode("utf-8", "replace").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        if info.get("loading") == "1":
            info.pop("aof_enabled", None)  # 0 until the file has been read, whatever is set
    elif not isinstance(first, ReplyError) or first.code != "NOPERM":
        raise CannotOpen(f"{shown} does not answer INFO as Redis does: {first}")
    config: dict[str, str] = {}
    for reply in replies[1:]:
        if isinstance(reply, ReplyError):
            return RedisAnswers(shown, info, None, reply.text)
        if isinstance(reply, list):
            texts = [item.decode("utf-8", "replace") for item in reply if isinstance(item, bytes)]
            config.update(zip(texts[::2], texts[1::2], strict=False))
    if "appendonly" not in config:
        return RedisAnswers(shown, info, None, "CONFIG GET appendonly comes back empty")
    return RedisAnswers(shown, info, config, "")
