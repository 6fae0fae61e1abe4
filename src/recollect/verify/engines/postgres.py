"""PostgreSQL 15 to 18: one cluster from a template folder, a unix socket and a loopback port.

Ready means that a connection gets ReadyForQuery; while the server recovers it answers 57P03. A kill takes the
postmaster and every backend: if only the postmaster is killed, its children hold the shared memory and the
restart fails.

Only its own user and root can use its socket, without a password; its port wants a random password. The password is in
the catalogue, and every start sets it again if it is missing: a crash or another engine's data may have removed it.

After a crash it would fsync a thousand files one by one; `syncfs` does the same in one call. Our other settings
(buffers, where to listen) do not affect durability.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from recollect.verify import providers
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines import postgres_spares
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.local import LocalServer
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.password import new_password, scram_verifier
from recollect.verify.engines.postgres_follower import PostgresFollower
from recollect.verify.engines.postgres_programs import programs_of
from recollect.verify.engines.protocols import Policy
from recollect.verify.engines.recipe import Following, Login, Recipe, RunIn
from recollect.verify.host import folder, ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Launch
from recollect.verify.providers.build import Build
from recollect.verify.wire.pgwire import Address, Connection, PgError, Row, literal

DURABILITY_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "synchronous_standby_names",
)


def _policy(name: str, **settings: str) -> Policy:
    return Policy(name, settings, settings)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        _policy("default", fsync="on", synchronous_commit="on", full_page_writes="on"),
        _policy("async-commit", fsync="on", synchronous_commit="off", full_page_writes="on"),
        _policy("fsync-off", fsync="off", synchronous_commit="on", full_page_writes="on"),
    )
}
_SETTINGS = {
    "shared_buffers": "16MB",
    "recovery_init_sync_method": "syncfs",
    "wal_retrieve_retry_interval": "20ms",
    "logging_collector": "off",
    "log_destination": "stderr",
    "listen_addresses": ports.HOST,
    "unix_socket_permissions": "0700",
}
_HBA = f"""\
local all all trust
local replication all trust
host all all {ports.HOST}/32 scram-sha-256
host replication all {ports.HOST}/32 scram-sha-256
"""
"""Who may connect. Used instead of the data folder's own file, which may come from anywhere."""
_POSTMASTER_STATE_LINE = 6  # after the pid


def is_ready(address: Address) -> bool:
    """True if a session can be opened, or if only a password is missing."""
    try:
        with Connection(address, timeout_s=2.0):
            return True
    except PgError as error:
        return error.code in ("28P01", "28000")
    except OSError:
        return False


def read_settings(address: Address) -> dict[str, str]:
    with Connection(address) as connection:
        return {name: connection.value(f"SHOW {name}") or "" for name in DURABILITY_SETTINGS}


def identify(address: Address) -> tuple[str, str]:
    with Connection(address) as connection:
        return "PostgreSQL", (connection.value("SHOW server_version") or "").split(" ")[0]


_WRITTEN = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"


class PostgresEngine(LocalServer):
    name = "postgres"
    policies = POLICIES
    default_policy = "default"
    stop_signal = signal.SIGINT  # "fast": end the sessions, write a checkpoint

    def __init__(self, build: Build, options: EngineOptions, primary: PostgresEngine | None = None) -> None:
        programs_of(build)
        for path in filter(None, (options.root, options.data)):
            cluster.check_reachable(path)
        super().__init__(build, options)
        self._primary = primary
        self._noted = 0
        self.socket_folder = folder.socket_folder(self.folder)
        # A replica has its primary's catalogue, and so its password.
        self.password: str = primary.password if primary else new_password()
        self._verifier: str = primary._verifier if primary else scram_verifier(self.password)

    @property
    def programs(self) -> Path:
        return programs_of(self.build)

    @property
    def address(self) -> Address:
        return Address(port=self.port, socket_folder=self.socket_folder)

    def prepare(self) -> None:
        """Make the data folder now rather than in `start()`, so that the copy is not part of what is timed."""
        try:
            self._prepare()
        except OSError as error:
            raise self._unwritable(error) from error

    def _prepare(self) -> None:
        who = cluster.identity()
        self._hba.write_text(_HBA)
        for place in (self.folder, self.socket_folder):
            cluster.own(place, who)
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        cluster.own(self._data, who)

    @property
    def _hba(self) -> Path:
        return self.socket_folder / "pg_hba.conf"

    def _make_cluster(self) -> None:
        if self._data.exists():
            if any(self._data.iterdir()):
                raise EngineError(
                    f"{self._data} is not empty and not a PostgreSQL data folder; choose another folder"
                )
            self._data.rmdir()
        if self._primary is not None:
            cluster.base_backup(self._data, self.programs, self._primary.socket_folder, self._primary.port)
        else:
            cluster.create(self._data, self.programs, self.version)

    def _launch(self, env: dict[str, str]) -> Launch:
        settings = {**_SETTINGS, **self._policy.settings}
        settings |= {"unix_socket_directories": str(self.socket_folder), "hba_file": str(self._hba)}
        argv = [
            str(self.programs / Path(self.build.location).name),
            "-D",
            str(self._data),
            "-p",
            str(self.port),
        ]
        if any(not space.is_symlink() for space in (self._data / "pg_tblspc").glob("*")):
            # A copy has them inside, and recovery would refuse that.
            settings["allow_in_place_tablespaces"] = "on"
        if self._policy.config is not None:
            settings |= self._custom_files(self._policy.config)
        for key, value in settings.items():
            argv += ["-c", f"{key}={value}"]
        return Launch(argv, self.log, env, Path("/"), cluster.identity())

    def _custom_files(self, config: Path) -> dict[str, str]:
        """A copy of the user's file: the server's user may not be able to read the original."""
        copy = self.folder / "custom.conf"
        shutil.copyfile(config, copy)
        copy.chmod(0o600)  # it may hold passwords
        if (who := cluster.identity()) is not None:
            os.chown(copy, who.uid, who.gid)
        # A pid file named there belongs to the server that the user runs.
        files = {
            "config_file": copy,
            "data_directory": self._data,
            "ident_file": self._data / "pg_ident.conf",
            "external_pid_file": self.socket_folder / "pid",
        }
        return {key: str(path) for key, path in files.items()}

    def _advice(self, log: str) -> str:
        """A folder of another major version may be refused for its files or, before that, for its postgresql.conf."""
        data = (self._data / "PG_VERSION").read_text().strip()
        if data != self.version.split(".")[0]:
            return f"its data is of another major version, {data}: upgrade it, or start that version"
        return super()._advice(log)

    def _ready(self) -> bool:
        """Looks into postmaster.pid first: connecting too early costs the server a process and a line in its log."""
        try:
            pid, *lines = (self._data / "postmaster.pid").read_text().splitlines()
            state = lines[_POSTMASTER_STATE_LINE].strip()
        except (OSError, ValueError, IndexError):
            return False
        if pid != str(self.pid):
            return False  # left by the previous server, which was killed
        if self._noted != self.pid:  # there is a state as soon as it has made its shared memory
            self._noted = self.pid
            folder.note_shared_memory(self._running())
        return state in ("ready", "standby") and is_ready(self.address)

    def _endpoint_now(self) -> Endpoint:
        user = cluster.SUPERUSER
        product, version = identify(self.address)
        self._set_password()
        return Endpoint(
            url=f"postgresql://{user}:{self.password}@{ports.HOST}:{self.port}/postgres",
            engine=self.name,
            product=product,
            version=version,
            policy=self.policy,
            provider=self.provider,
            host=ports.HOST,
            port=self.port,
            user=user,
            password=self.password,
            path=self._data,
            socket=self.socket_folder / f".s.PGSQL.{self.port}",
            socket_url=f"postgresql://{user}@/postgres?host={self.socket_folder}&port={self.port}",
            replicas=self.replica_urls,
        )

    def _set_password(self) -> None:
        verifier, user = literal(self._verifier), literal(cluster.SUPERUSER)
        known = f"SELECT rolpassword = {verifier} FROM pg_authid WHERE rolname = {user}"
        with Connection(self.address) as connection:
            if connection.value("SELECT pg_is_in_recovery()") == "t" or connection.value(known) == "t":
                return
            # Do not wait for a synchronous standby, which may not be there yet.
            connection.ask(
                f"SET LOCAL synchronous_commit = local; ALTER ROLE {cluster.SUPERUSER} PASSWORD {verifier}"
            )

    def _wipe_data(self) -> None:
        self._leave_data()
        super()._wipe_data()

    def close(self) -> None:
        self.kill()
        self._leave_data()
        super().close()

    def _leave_data(self) -> None:
        """Leaves the folder for the next cluster, unless it is the user's."""
        if self._data.is_relative_to(self.folder):
            postgres_spares.keep(self._data, self.version)

    def settings(self) -> Mapping[str, str]:
        return read_settings(self.address)

    def ask(self, sql: str) -> list[Row]:
        """One statement, straight to the server: what the engine really has, whatever a store says."""
        with Connection(self.address) as connection:
            return connection.ask(sql)

    # Capabilities -------------------------------------------------------------------------------

    def written(self) -> int:
        """The end of the write-ahead log, including what is not committed."""
        return int(self.ask(_WRITTEN)[0][0] or 0)

    def upgrade(self, version: str) -> Endpoint:
        """pg_upgrade to another major version; within one, the same folder under the other build."""
        build = providers.find(f"postgres@{version}")
        if build.version.split(".")[0] == self.version.split(".")[0]:
            return self.swap(version)
        if self.alive() or "in production" in cluster.control_value(
            self._data, self.programs, "Database cluster state"
        ):
            # pg_upgrade only takes a cluster that was shut down cleanly.
            self.alive() or self.start()
            self.stop()
        cluster.upgrade(self._data, self.programs, programs_of(build))
        self.build = build
        return self.start()

    def downgrade(self, version: str) -> Endpoint:
        """Simply tries. Another major version refuses the folder with `StartFailed`."""
        return self.swap(version)

    def swap(self, version: str) -> Endpoint:
        build = providers.find(f"postgres@{version}")
        programs_of(build)
        return self._start_under(build)

    def replica(self) -> PostgresReplica:
        replica = PostgresReplica(self)
        self._attach(replica)
        return replica


class PostgresReplica(PostgresFollower):
    """A streaming replica, as another process on this machine."""

    def __init__(self, primary: PostgresEngine) -> None:
        options = replace(primary.options, data=None, port=None)
        self.engine = PostgresEngine(primary.build, options, primary=primary)
        place = f"host={primary.socket_folder} port={primary.port} user={cluster.SUPERUSER}"
        super().__init__(
            self.engine, (self.engine.address, primary.address), lambda: place, options.start_timeout_s
        )
        try:
            self.engine.start()
            self.wait_until_streaming()
        except BaseException:
            self.engine.close()
            raise


# In a container -----------------------------------------------------------------------------------

_CONTAINER_CONFIG = "/etc/recollect.conf"


def _address(login: Login) -> Address:
    user = login.user or cluster.SUPERUSER
    return Address(
        port=login.port, host=login.host, user=user, password=login.password, database=login.database or user
    )


def _container_command(product: str, policy: Policy) -> list[str]:
    settings = {"shared_buffers": "16MB", "recovery_init_sync_method": "syncfs", **policy.settings}
    if policy.config:
        settings["config_file"] = _CONTAINER_CONFIG
        settings["listen_addresses"] = "*"
    return ["postgres", *(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))]


def _url(login: Login) -> str:
    address = _address(login)
    password = f":{quote(address.password, safe='')}" if address.password else ""
    who = f"{quote(address.user, safe='')}{password}"
    return f"postgresql://{who}@{address.host}:{address.port}/{quote(address.database, safe='')}"


def _value(login: Login, sql: str) -> str:
    with Connection(_address(login)) as connection:
        return connection.value(sql) or ""


def _compose_login(env: Mapping[str, str], command: list[str], login: Login) -> Login:
    return replace(
        login,
        user=env.get("POSTGRES_USER"),
        password=env.get("POSTGRES_PASSWORD"),
        database=env.get("POSTGRES_DB"),
    )


def _conninfo(place: Login) -> str:
    """As libpq reads it: every value in quotes."""
    told = {
        "host": place.host,
        "port": str(place.port),
        "user": _address(place).user,
        "password": place.password,
    }
    quoted = {key: value.replace("\\", "\\\\").replace("'", "\\'") for key, value in told.items() if value}
    return " ".join(f"{key}='{value}'" for key, value in quoted.items())


def _begin_replica(primary: Login, place: Login, run_in: RunIn) -> tuple[str, ...]:
    """The official image lets nobody replicate from another container, so a line is added for our replica. It begins as
    a copy that its primary streams to it, and then starts as any other container of this image."""
    method = "scram-sha-256" if place.password else "trust"
    hba, data = (shlex.quote(_value(primary, f"SHOW {name}")) for name in ("hba_file", "data_directory"))
    run_in(("sh", "-c", f"printf 'host replication all all {method}\\n' >> {hba}"))
    _value(primary, "SELECT pg_reload_conf()")
    copy = f"pg_basebackup -D {data} -R -X stream -c fast -d {shlex.quote(_conninfo(place))}"
    return ("sh", "-c", f'test -s {data}/PG_VERSION || {copy} || exit 1; exec "$@"', "sh")


def _follow(pair: Following) -> PostgresFollower:
    follower = PostgresFollower(
        pair.server,
        (_address(pair.replica), _address(pair.primary)),
        lambda: _conninfo(pair.place()),
        pair.server.options.start_timeout_s,
    )
    follower.wait_until_streaming()
    return follower


RECIPE = Recipe(
    engine="postgres",
    port=5432,
    data="/var/lib/postgresql",
    policies=POLICIES,
    default_policy="default",
    command=_container_command,
    files=lambda policy, _: {_CONTAINER_CONFIG: policy.config.read_text()} if policy.config else {},
    # A folder inside the mount: initdb wants it empty, and a mount may have a lost+found. The images of 18
    # and of earlier versions disagree on where it is, so it is set explicitly.
    env=lambda password: {"POSTGRES_PASSWORD": password, "PGDATA": "/var/lib/postgresql/recollect"},
    own=lambda policy, password, login: replace(login, user=cluster.SUPERUSER, password=password),
    is_ready=lambda login: is_ready(_address(login)),
    identify=lambda login: identify(_address(login)),
    settings=lambda login: read_settings(_address(login)),
    folder=lambda login: _value(login, "SHOW data_directory"),
    written=lambda login: int(_value(login, _WRITTEN)),
    change=lambda policy: [w for key, value in policy.settings.items() for w in ("-c", f"{key}={value}")],
    url=_url,
    credentials=_compose_login,
    begin_replica=_begin_replica,
    follow=_follow,
)
