"""Redis 6.2, 7 and 8, and Valkey: one server process, a unix socket and a loopback port.

The settings go into a generated file, not on the command line, where 6.2 and 7 want several `save` points written
differently. The user's own file (`custom`) is copied into it, without what we decide: where to listen and where to
keep data.

Only its own user and root can use its socket. On its port anybody on this machine may store and read, so that a target
that knows only host and port works. Administration (loading modules, choosing where files are written, shutting down)
needs a separate user with a random password, which is in the address. The user's own file may set other users.

Ready means PONG. While it loads its data, Redis answers `-LOADING`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from recollect import private
from recollect.verify import providers
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.password import new_password
from recollect.verify.engines.protocols import Policy
from recollect.verify.engines.recipe import Following, Login, Recipe
from recollect.verify.engines.redis_follower import RedisFollower
from recollect.verify.host import folder, ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.ports import Reservation
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build
from recollect.verify.wire.resp import Address, Connection, Reply, RespError, fields_of
from recollect.verify.wire.stream import Garbled

SAVE_POINTS = "3600 1 300 100 60 10000"
"""The default of every release since 6.2: after that many seconds if at least that many keys changed."""


def _policy(name: str, **settings: str) -> Policy:
    read_back = {key.replace("_", "-"): value for key, value in settings.items()}
    return Policy(name, read_back, read_back)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        _policy("none", save="", appendonly="no"),
        _policy("rdb", save=SAVE_POINTS, appendonly="no"),
        _policy("aof-no", save="", appendonly="yes", appendfsync="no"),
        _policy("aof-everysec", save="", appendonly="yes", appendfsync="everysec"),
        _policy("aof-always", save="", appendonly="yes", appendfsync="always"),
        _policy(
            "mixed", save=SAVE_POINTS, appendonly="yes", appendfsync="everysec", aof_use_rdb_preamble="yes"
        ),
    )
}
GROUP_POLICIES: Mapping[str, Policy] = dict(POLICIES) | {
    policy.name: policy
    for policy in (
        _policy(
            f"min-replicas-lag-{lag_s}",
            save="",
            appendonly="no",
            min_replicas_to_write="1",
            min_replicas_max_lag=str(lag_s),
        )
        for lag_s in (10, 1)
    )
}
"""With replicas: a primary that has heard of none for so many seconds takes no writes."""
DURABILITY_SETTINGS = (
    "save",
    "appendonly",
    "appendfsync",
    "aof-use-rdb-preamble",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "min-replicas-max-lag",
)

OURS = frozenset(
    [
        "bind",
        "port",
        "tls-port",
        "unixsocket",
        "unixsocketperm",
        "daemonize",
        "supervised",
        "pidfile",
        "logfile",
        "syslog-enabled",
        "dir",
        "replicaof",
        "slaveof",
    ]
)
"""Directives of the user's own file that are left out: we decide where to listen and to write, and a test
engine must not become a replica of the production one."""


def configuration_lines(policy: Policy) -> list[str]:
    """The policy as lines of redis.conf, for any provider."""
    lines = _users_lines(policy.config) if policy.config else []
    for key, value in policy.settings.items():
        if key == "save" and value:
            points = re.findall(r"\d+ \d+", value)
            lines += [f"save {point}" for point in points]
        else:
            lines.append(f'{key} "{value}"')
    return lines


def _users_lines(config: Path) -> list[str]:
    lines = config.read_text(errors="surrogateescape").splitlines()
    return [line for line in lines if (line.split() or ["#"])[0].lower() not in OURS]


def is_ready(address: Address) -> bool:
    """True on PONG, and also if it wants a password: then it is up."""
    try:
        with Connection(address, timeout_s=1.0) as connection:
            return connection.ask("PING") == "PONG"
    except RespError as error:
        if str(error).startswith("DENIED"):
            raise EngineError(
                "it answers, but only to its own machine (protected mode): give it a password, or start it with"
                " `--protected-mode no` as the official image does"
            ) from error
        return str(error).startswith(("NOAUTH", "NOPERM"))
    except OSError:
        return False


def identify(address: Address) -> tuple[str, str]:
    """Product and version, as the server itself reports. Valkey reports a `redis_version` too, for compatibility."""
    with Connection(address) as connection:
        info = fields_of(connection.ask("INFO", "server"))
    if "valkey_version" in info:
        return "Valkey", info["valkey_version"]
    if "redis_version" not in info:
        raise Garbled("the server's answer to INFO has no redis_version")
    return "Redis", info["redis_version"]


def read_settings(address: Address) -> dict[str, str]:
    settings = {}
    with Connection(address) as connection:
        for name in DURABILITY_SETTINGS:
            reply = connection.ask("CONFIG", "GET", name)
            if isinstance(reply, list) and len(reply) == 2:
                settings[name] = str(reply[1])
    return settings


USER = "recollect"
_ANYBODY = "+@all -@admin -migrate +config|get +role +save +bgsave +lastsave +bgrewriteaof"
"""What is allowed without a password: what a store does, and nothing that reaches beyond the data."""
_AUTHENTICATION = ("requirepass", "user", "aclfile")


def _user_and_password(policy: Policy, password: str) -> tuple[str | None, str | None]:
    """Our own login on a server with this policy."""
    return (None, _password_in(policy)) if _has_its_own(policy) else (USER, password)


def _user_lines(policy: Policy, password: str) -> list[str]:
    """The two users, as lines of redis.conf; none if the user's own file says who may do what."""
    if _has_its_own(policy):
        return []
    return [
        f"user default reset on nopass ~* &* {_ANYBODY}",
        f"user {USER} reset on >{password} ~* &* +@all",
    ]


def _auth(user: str | None, password: str | None) -> str:
    return f"{user or ''}:{quote(password, safe='')}@" if password else ""


class RedisConsole:
    """Commands straight to a server, wherever it runs: what the engine really has, whatever a store says."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def ask(self, *words: str) -> Reply:
        with Connection(self.address) as connection:
            return connection.ask(*words)

    def written(self) -> int:
        """Changes since the last snapshot; nobody takes a snapshot in between."""
        return int(fields_of(self.ask("INFO", "persistence"))["rdb_changes_since_last_save"])


class RedisEngine(LocalServer):
    name = "redis"
    policies = POLICIES
    default_policy = "aof-everysec"

    def __init__(self, build: Build, options: EngineOptions, primary: RedisEngine | None = None) -> None:
        super().__init__(build, options)
        self.socket = folder.socket_folder(self.folder) / f"{self.folder.name}.sock"
        self._primary = primary
        self._own_password: str = primary._own_password if primary else new_password()
        self.more_lines: tuple[str, ...] = ()
        """Added to its configuration at the next starts."""

    @property
    def _login(self) -> tuple[str | None, str | None]:
        return _user_and_password(self._policy, self._own_password)

    @property
    def address(self) -> Address:
        user, password = self._login
        return Address(socket=self.socket, username=user, password=password)

    def _prepare(self) -> None:
        self._data.mkdir(0o700, parents=True, exist_ok=True)
        if not os.access(self._data, os.W_OK):
            raise EngineError(
                f"the data folder {self._data} is not writable; choose one that you may write to"
            )
        self.socket.unlink(missing_ok=True)
        ours = [
            "daemonize no",
            "supervised no",
            'pidfile ""',
            'logfile ""',
            f"bind {ports.HOST}",
            f"port {self.port}",
            f'unixsocket "{self.socket}"',
            f'dir "{self._data}"',
            "repl-diskless-sync yes",
            "repl-diskless-sync-delay 0",
        ]
        ours += _user_lines(self._policy, self._own_password)
        user, password = self._login
        if self._primary is not None:
            ours.append(f"replicaof {ports.HOST} {self._primary.port}")
            ours += [f"masteruser {user}"] if user else []
            ours += [f'masterauth "{password}"'] if password else []
        lines = "\n".join(
            [*configuration_lines(self._policy), *ours, *self._further_lines(), *self.more_lines]
        )
        private.write_artifact(self.folder / "redis.conf", f"{lines}\n")  # with passwords

    def _further_lines(self) -> list[str]:
        """What a server needs in order to be one of several."""
        return []

    def _launch(self, env: dict[str, str]) -> Launch:
        argv = [self.build.location, str(self.folder / "redis.conf")]
        # The user's file may name others by relative paths.
        cwd = self._policy.config.parent if self._policy.config else self._data
        return Launch(argv, self.log, env, cwd)

    def _ready(self) -> bool:
        return self.socket.exists() and is_ready(self.address)

    def _endpoint_now(self) -> Endpoint:
        product, version = identify(self.address)
        user, password = self._login
        auth = _auth(user, password)
        return Endpoint(
            url=f"redis://{auth}{ports.HOST}:{self.port}/0",
            engine=self.name,
            product=product,
            version=version,
            policy=self.policy,
            provider=self.provider,
            host=ports.HOST,
            port=self.port,
            user=user,
            password=password,
            path=self._data,
            socket=self.socket,
            socket_url=f"unix://{auth}{self.socket}?db=0",
            replicas=self.replica_urls,
        )

    def settings(self) -> Mapping[str, str]:
        return read_settings(self.address)

    def ask(self, *words: str) -> Reply:
        """One command, straight to the server."""
        return RedisConsole(self.address).ask(*words)

    # Capabilities ---------------------------------------------------------------------------------

    def written(self) -> int:
        return RedisConsole(self.address).written()

    def upgrade(self, version: str) -> Endpoint:
        """The same folder under another version, as after a package or image upgrade."""
        return self.swap(version)

    def downgrade(self, version: str) -> Endpoint:
        """The same; 7 → 6.2 starts empty and says nothing, because the AOF has moved to `appendonlydir`."""
        return self.swap(version)

    def swap(self, version: str) -> Endpoint:
        name = "valkey" if self.product == "Valkey" and "@" not in version else "redis"
        return self._start_under(providers.find(version if "@" in version else f"{name}@{version}"))

    def replica(self) -> RedisReplica:
        replica = RedisReplica(self)
        self._attach(replica)
        return replica


class RedisReplica(RedisFollower):
    """A streaming replica, as another process on this machine."""

    def __init__(self, primary: RedisEngine) -> None:
        options = replace(primary.options, data=None, port=None)
        self.engine = RedisEngine(primary.build, options, primary=primary)
        self._unused = Reservation()
        super().__init__(
            self.engine,
            (self.engine, primary),
            place=lambda: (ports.HOST, primary.port),
            nowhere=(ports.HOST, self._unused.port),
            timeout_s=options.start_timeout_s,
        )
        try:
            self.engine.start()
            self.wait_for_link()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        self._unused.close()


def _has_its_own(policy: Policy) -> bool:
    """Whether the user's own file says who may do what."""
    if policy.config is None:
        return False
    lines = policy.config.read_text(errors="replace").splitlines()
    return any((line.split() or [""])[0].lower() in _AUTHENTICATION for line in lines)


def _password_in(policy: Policy) -> str | None:
    """The `requirepass` of the user's own file; the last one counts."""
    if policy.config is None:
        return None
    password = None
    for line in policy.config.read_text(errors="replace").splitlines():
        if line.strip().lower().startswith("requirepass "):
            password = shlex.split(line)[1]
    return password


# In a container -----------------------------------------------------------------------------------

_CONTAINER_CONFIG = "/etc/recollect.conf"


def _address(login: Login) -> Address:
    return Address(host=login.host, port=login.port, username=login.user, password=login.password)


def _container_files(policy: Policy, password: str) -> dict[str, str]:
    ours = ["daemonize no", 'logfile ""', "bind 0.0.0.0", "protected-mode no", "port 6379", "dir /data"]
    ours += ["repl-diskless-sync yes", "repl-diskless-sync-delay 0"]
    ours += _user_lines(policy, password)
    return {_CONTAINER_CONFIG: "\n".join([*configuration_lines(policy), *ours]) + "\n"}


def _container_login(policy: Policy, password: str, login: Login) -> Login:
    user, password_now = _user_and_password(policy, password)
    return replace(login, user=user, password=password_now)


def _compose_login(env: Mapping[str, str], command: list[str], login: Login) -> Login:
    if "--requirepass" in command[:-1]:
        return replace(login, password=command[command.index("--requirepass") + 1])
    return replace(login, password=env.get("REDIS_PASSWORD") or env.get("VALKEY_PASSWORD"))


def _folder(login: Login) -> str:
    reply = RedisConsole(_address(login)).ask("CONFIG", "GET", "dir")
    if not isinstance(reply, list) or len(reply) != 2:
        raise EngineError(f"CONFIG GET dir was answered with {reply!r}, not with a folder")
    return str(reply[1])


def _options(policy: Policy) -> list[str]:
    """The last one counts; `save` is one word with all its points, as every release from 7 on takes it, and 6.2 too."""
    return [word for key, value in policy.settings.items() for word in (f"--{key}", value)]


def _follow(pair: Following) -> RedisFollower:
    own, primary = (RedisConsole(_address(login)) for login in (pair.replica, pair.primary))
    for setting, value in (("masteruser", pair.primary.user), ("masterauth", pair.primary.password)):
        if value is not None:
            own.ask("CONFIG", "SET", setting, value)
    # Port 1 of the container itself: nobody listens there.
    follower = RedisFollower(
        pair.server,
        (own, primary),
        lambda: _reached(pair),
        (ports.HOST, 1),
        pair.server.options.start_timeout_s,
    )
    follower.resume_replay()
    return follower


def _reached(pair: Following) -> tuple[str, int]:
    place = pair.place()
    return place.host, place.port


RECIPE = Recipe(
    engine="redis",
    port=6379,
    data="/data",
    policies=POLICIES,
    default_policy="aof-everysec",
    command=lambda product, _: [f"{product.lower()}-server", _CONTAINER_CONFIG],
    files=_container_files,
    env=lambda password: {},
    own=_container_login,
    is_ready=lambda login: is_ready(_address(login)),
    identify=lambda login: identify(_address(login)),
    settings=lambda login: read_settings(_address(login)),
    folder=_folder,
    written=lambda login: RedisConsole(_address(login)).written(),
    change=_options,
    url=lambda login: f"redis://{_auth(login.user, login.password)}{login.host}:{login.port}/0",
    credentials=_compose_login,
    begin_replica=lambda primary, place, run_in: (),
    follow=_follow,
)
