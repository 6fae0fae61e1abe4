"""A Redis or Valkey primary with two replicas, and three sentinels that watch it and name its successor.

A sentinel asks its primary every ten seconds who its replicas are, and tells the others every two seconds who it is.
`SENTINEL DEBUG` (Redis 7, Valkey) makes both 100 ms for the start, or the group would be ready only after ten seconds;
then the defaults are set again. A primary is considered down after one second instead of thirty.
"""

from __future__ import annotations

from dataclasses import replace

from recollect import private
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.mesh import SENTINELS as SENTINELS_CUT
from recollect.verify.engines.mesh import Mesh
from recollect.verify.engines.meshed import MeshedGroup
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.redis import GROUP_POLICIES, USER, RedisEngine
from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build
from recollect.verify.wire.resp import Reply, RespError, fields_of

SERVICE = "memory"
REPLICAS = 2
SENTINELS = 3
QUORUM = 2
DOWN_AFTER_MS = 1000
_HURRIED = ("info-period", "100", "publish-period", "100")
_USUAL = ("info-period", "10000", "publish-period", "2000")
_ANYBODY = "+@all -@admin -@dangerous +info +sentinel"
"""What is allowed at a sentinel without a password: asking."""


class SentinelServer(RedisEngine):
    """One of the three servers, or one of the three sentinels, which are the same program."""

    policies = GROUP_POLICIES

    def __init__(
        self, build: Build, options: EngineOptions, first: SentinelServer | None, *, watches: bool
    ) -> None:
        super().__init__(build, options)
        if first is not None:
            self._own_password = first._own_password
        self._first = first
        self.watches = watches
        self.seen = self.port
        """The port that others are told; a proxy may listen there."""

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        return self._login

    def _prepare(self) -> None:
        if not self.watches:
            super()._prepare()
            return
        self._data.mkdir(0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        config = self.folder / "redis.conf"
        if not config.exists():  # a sentinel writes what it has seen into its own file
            private.write_artifact(config, "\n".join([*self._sentinel_lines(), ""]))

    def _sentinel_lines(self) -> list[str]:
        assert self._first is not None
        user, password = self._login
        auth = [f"sentinel auth-pass {SERVICE} {password}"] if password else []
        auth += [f"sentinel auth-user {SERVICE} {user}"] if user else []
        guarded = [
            f"user default reset on nopass ~* &* {_ANYBODY}",
            f"user {USER} reset on >{self._own_password} ~* &* +@all",
            f"sentinel sentinel-user {USER}",
            f"sentinel sentinel-pass {self._own_password}",
        ]
        return [
            "daemonize no",
            'logfile ""',
            f"bind {ports.HOST}",
            f"port {self.port}",
            f'unixsocket "{self.socket}"',
            f'dir "{self._data}"',
            f"sentinel monitor {SERVICE} {ports.HOST} {self._first.seen} {QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 1000",  # a vote without a result is repeated after twice this
            *auth,
            *(guarded if user else []),
        ]

    def _further_lines(self) -> list[str]:
        user, password = self._login
        lines = [f"replica-announce-ip {ports.HOST}", f"replica-announce-port {self.seen}"]
        if self._first is not None:
            lines.append(f"replicaof {ports.HOST} {self._first.seen}")
        lines += [f"masteruser {user}"] if user else []
        lines += [f'masterauth "{password}"'] if password else []
        return lines

    def _launch(self, env: dict[str, str]) -> Launch:
        launch = super()._launch(env)
        if not self.watches:
            return launch
        return Launch([*launch.argv, "--sentinel"], launch.log, launch.env, launch.cwd)


class RedisSentinelEngine(MeshedGroup[SentinelServer]):
    name = "redis-sentinel"
    policies = GROUP_POLICIES
    default_policy = "aof-everysec"
    first_before_others = True

    def _make_servers(self) -> None:
        if self.product == "Redis" and int(self.version.split(".")[0]) < 7:
            raise EngineError(
                f"{self.name} needs Redis 7 or newer, or Valkey: the sentinels of {self.version} take ten seconds to "
                "know each other; ask for redis-sentinel@7 or valkey-sentinel"
            )
        for index in range(1 + REPLICAS + SENTINELS):
            first = self.servers[0] if self.servers else None
            self.servers.append(SentinelServer(self.build, self.options, first, watches=index > REPLICAS))
        self._hurried = False

    def put_proxies_between(self) -> None:
        """Before the first start: from then on `isolate` works. What clients send goes through a proxy as well."""
        self._mesh = mesh = Mesh()
        for server in self.copies:
            server.seen, _ = mesh.stand_before(server.folder.name, server.port)

    @property
    def copies(self) -> list[SentinelServer]:
        """The servers that hold memory: the first primary, and those that began as its replicas."""
        return [server for server in self.servers if not server.watches]

    @property
    def sentinels(self) -> list[SentinelServer]:
        return [server for server in self.servers if server.watches]

    def _missing(self) -> str | None:
        sentinels = [sentinel for sentinel in self.sentinels if sentinel.alive()]
        if not self._hurried:
            for sentinel in sentinels:
                sentinel.ask("SENTINEL", "DEBUG", *_HURRIED)
            self._hurried = True
        for sentinel in sentinels:
            if (missing := self._unknown_to(sentinel)) is not None:
                return missing
        for sentinel in sentinels:
            sentinel.ask("SENTINEL", "DEBUG", *_USUAL)
        self._hurried = False
        return None

    def _unknown_to(self, sentinel: SentinelServer) -> str | None:
        master = _fields(sentinel.ask("SENTINEL", "MASTER", SERVICE))
        if master["flags"] != "master":
            return f"{sentinel.folder.name} says that the primary is {master['flags']}"
        others = int(master["num-other-sentinels"])
        if others < len([one for one in self.sentinels if one.alive()]) - 1:
            return f"{sentinel.folder.name} knows {others} other sentinels"
        replicas = sentinel.ask("SENTINEL", "REPLICAS", SERVICE)
        assert isinstance(replicas, list)
        up = [
            one
            for one in map(_fields, replicas)
            if (one["flags"], one["master-link-status"]) == ("slave", "ok")
        ]
        if len(up) < len([one for one in self.copies if one.alive()]) - 1:
            return f"{sentinel.folder.name} knows {len(up)} replicas"
        return None

    def _endpoint_now(self) -> Endpoint:
        first = self.servers[0].endpoint
        user, password = self.servers[0].credentials
        auth = first.url.removeprefix("redis://").rpartition("@")[0] if password else ""
        places = ",".join(f"{ports.HOST}:{sentinel.port}" for sentinel in self.sentinels)
        url = f"redis+sentinel://{auth}{'@' if auth else ''}{places}/{SERVICE}"
        nodes = tuple(f"redis://{ports.HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return replace(
            self._reached_at(first, url, self.primary().seen, nodes),
            user=user,
            password=password,
            replicas=tuple(copy.endpoint.url for copy in self.copies if copy is not self.primary()),
            service=SERVICE,
        )

    # What faults do to it -------------------------------------------------------------------------

    def primary(self) -> SentinelServer:
        """As the first running sentinel sees it."""
        sentinel = next(one for one in self.sentinels if one in self.others())
        told = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(told, list)
        return next(server for server in self.copies if str(server.seen) == told[1])

    def primaries(self) -> list[SentinelServer]:
        return [self.primary()]

    def has_successor(self, old: SentinelServer) -> bool:
        """Whether all sentinels name another primary, and it has become one."""
        try:
            told = [
                sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                for sentinel in self.sentinels
                if sentinel in self.others()
            ]
            now = self.primary()
            agreed = all(isinstance(one, list) and one[1] == str(now.seen) for one in told)
            return agreed and now is not old and fields_of(now.ask("INFO", "replication"))["role"] == "master"
        except (OSError, RespError):
            return False

    def isolate(self, server: SentinelServer, *, replicas: bool = True) -> None:
        """Cuts it off from the sentinels, and from the replicas unless only these are meant; clients still reach it."""
        others = [one.folder.name for one in self.copies if one is not server] if replicas else []
        self._proxies.cut(server.folder.name, [SENTINELS_CUT, *others])

    def replicas_of(self, primary: SentinelServer) -> list[SentinelServer]:
        return [copy for copy in self.copies if copy is not primary and copy in self.others()]


def _fields(reply: Reply) -> dict[str, str]:
    assert isinstance(reply, list)
    words = [str(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
