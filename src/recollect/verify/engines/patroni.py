"""Three PostgreSQL servers under Patroni, which keeps in etcd who of them is the primary, and chooses the next one.

Nothing is promoted here by hand: a fault breaks something, and Patroni does what it does in production. It runs from
its own package, one process for each server; one parent holds both (`host.holder`), so that a host can be lost.

`ttl` is the least that Patroni takes, 20 s: for so long the lock of a primary that vanished stays its own. The loop
runs every second instead of every ten.

Between the servers, and between each of them and etcd, there can be proxies (`put_proxies_between`), so that a primary
is cut off from all of them but not from its clients.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect import private
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.etcd import EtcdServer
from recollect.verify.engines.mesh import Mesh
from recollect.verify.engines.meshed import MeshedGroup
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.postgres import PostgresEngine, is_ready
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import holder, ports
from recollect.verify.host.errors import EngineError, NotInstalled
from recollect.verify.host.ports import Reservation
from recollect.verify.host.processes import Launch
from recollect.verify.providers import patroni
from recollect.verify.providers.build import Build
from recollect.verify.wire.pgwire import PgError

MEMBERS = 3
TTL_S, LOOP_S, RETRY_S = 20, 1, 3
START_TIMEOUT_S = 120.0
_REST_TIMEOUT_S = 2.0
_STOPPED = ("57P01", "57P02", "57P03")
"""What PostgreSQL says when it goes down, or is not up yet."""
_PEERS, _ETCD = "peers", "etcd"
ASYNCHRONOUS, SYNCHRONOUS, QUORUM = "asynchronous", "synchronous", "quorum"
_MODES = {ASYNCHRONOUS: False, SYNCHRONOUS: True, QUORUM: "quorum"}
"""Patroni's `synchronous_mode`."""
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
PATRONI_POLICIES: Mapping[str, Policy] = {name: Policy(name, _DURABLE, _DURABLE) for name in _MODES}
_SETTINGS = {
    "shared_buffers": "16MB",
    "recovery_init_sync_method": "syncfs",
    "unix_socket_permissions": "0700",
    "wal_log_hints": "on",  # an old primary is set back with pg_rewind
    "wal_keep_size": "256MB",
}
_HBA = (
    "local all all trust",
    f"host all all {ports.HOST}/32 scram-sha-256",
    f"host replication all {ports.HOST}/32 scram-sha-256",
)


class PatroniMember(PostgresEngine):
    """One server with its Patroni."""

    name = "patroni"
    policies = PATRONI_POLICIES
    default_policy = ASYNCHRONOUS
    stop_signal = signal.SIGTERM

    def __init__(
        self, build: Build, options: EngineOptions, keepers: patroni.Keepers, first: PatroniMember | None
    ) -> None:
        super().__init__(build, options, primary=first)
        self._keepers = keepers
        self._python = _interpreter()
        self._rest = Reservation()
        self.etcd_port = 0
        """Where it finds etcd; a proxy may listen there, as at the next two."""
        self.seen, self.rest_seen = self.port, self._rest.port

    @property
    def rest_port(self) -> int:
        return self._rest.port

    def _prepare(self) -> None:
        """Patroni makes the data folder: initdb for the first, a base backup for the others."""
        who = cluster.identity()
        config = self.folder / "patroni.json"  # JSON is YAML
        private.write_artifact(config, json.dumps(self._config()))
        for place in (self.folder, self.socket_folder):
            cluster.own(place, who)
        if who is not None:
            os.chown(config, who.uid, who.gid)

    def _config(self) -> dict[str, Any]:
        login = {"username": cluster.SUPERUSER, "password": self.password}
        return {
            "scope": "memory",
            "name": self.folder.name,
            "restapi": {
                "listen": f"{ports.HOST}:{self.rest_port}",
                "connect_address": f"{ports.HOST}:{self.rest_seen}",
                "authentication": login,
            },
            # Only there: otherwise it asks etcd where its members are, and goes to them past our proxy.
            "etcd3": {"hosts": [f"{ports.HOST}:{self.etcd_port}"], "use_proxies": True},
            "watchdog": {"mode": "off"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": LOOP_S,
                    "retry_timeout": RETRY_S,
                    "maximum_lag_on_failover": 1 << 20,
                    "synchronous_mode": _MODES[self.policy],
                    "postgresql": {
                        "use_pg_rewind": True,
                        "remove_data_directory_on_diverged_timelines": True,
                    },
                },
                "initdb": ["no-sync", {"encoding": "UTF8"}, {"locale": "C"}, {"wal-segsize": "1"}],
            },
            "postgresql": {
                "listen": f"{ports.HOST}:{self.port}",
                "connect_address": f"{ports.HOST}:{self.seen}",
                "use_unix_socket": True,
                "data_dir": str(self._data),
                "bin_dir": str(self.programs),
                "pgpass": str(self.folder / "pgpass"),  # the server's user may have no home
                "pg_hba": list(_HBA),
                "authentication": dict.fromkeys(("superuser", "replication", "rewind"), login),
                "parameters": {
                    **_SETTINGS,
                    **self._policy.settings,
                    "unix_socket_directories": str(self.socket_folder),
                },
            },
        }

    def _launch(self, env: dict[str, str]) -> Launch:
        path = os.pathsep.join((str(self.programs), os.defpath))
        env = {**env, "PATH": path, "PYTHONPATH": str(self._keepers.packages)}
        # Compiled once for all: its user may not write beside the packages.
        env["PYTHONPYCACHEPREFIX"] = str(self.folder.parent / "compiled")
        held = [str(self._python), "-m", "patroni", str(self.folder / "patroni.json")]
        source = Path(holder.__file__).read_text()
        return Launch(
            [str(self._python), "-I", "-S", "-c", source, *held],
            self.log,
            env,
            self.folder,
            cluster.identity(),
        )

    def _ready(self) -> bool:
        """Looks into postmaster.pid first: asking Patroni costs it more than that."""
        if self.server_pid is None or not is_ready(self.address):
            return False
        told = self._told("/patroni")
        return told is not None and told.get("state") == "running"

    def is_up(self) -> bool:
        return self._ready()

    def _endpoint_when_ready(self) -> Endpoint:
        """Patroni may stop one that was ready again, to make it follow another."""
        give_up = time.monotonic() + self.options.start_timeout_s
        while True:
            try:
                return super()._endpoint_when_ready()
            except (OSError, PgError) as error:
                stopped = isinstance(error, OSError) or error.code in _STOPPED
                if not stopped or time.monotonic() > give_up:
                    raise

    @property
    def server_pid(self) -> int | None:
        """Of its PostgreSQL; None while none is ready. What a killed one left counts until the next is started."""
        try:
            pid, *_, state = (self._data / "postmaster.pid").read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if state in ("ready", "standby") else None

    def _set_password(self) -> None:
        """Patroni does, when it makes the first data folder."""

    def _leave_data(self) -> None:
        """Nobody can use it again: it is not a copy of a template."""

    def close(self) -> None:
        super().close()
        self._rest.close()

    # What it says of itself -----------------------------------------------------------------------

    def leads(self) -> bool:
        """Whether it is the primary and has the lock, by its own word: etcd remembers a dead one for a while."""
        try:
            return self._get("/primary")[0] == http.client.OK
        except OSError:
            return False

    def members(self) -> list[dict[str, Any]]:
        """All of the group, as it sees them."""
        told = self._told("/cluster")
        return [] if told is None else list(told.get("members", ()))

    def ask_to_switch_over(self) -> http.client.HTTPConnection:
        """Asks it, the primary, to hand over to another. The answer comes on this connection when that has happened."""
        connection = http.client.HTTPConnection(ports.HOST, self.rest_port, timeout=START_TIMEOUT_S)
        login = f"{cluster.SUPERUSER}:{self.password}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(login).decode()}"}
        connection.request("POST", "/switchover", json.dumps({"leader": self.folder.name}), headers)
        return connection

    def kill_server(self) -> None:
        """PostgreSQL alone, with SIGKILL; its Patroni finds out."""
        if (pid := self.server_pid) is None:
            raise EngineError(f"{self.folder.name} has no running server; its log ends:\n{self.logs(5)}")
        os.kill(pid, signal.SIGKILL)

    def _told(self, path: str) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads(self._get(path)[1])
        except (OSError, ValueError):
            return None
        return told

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(ports.HOST, self.rest_port, timeout=_REST_TIMEOUT_S)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


class PatroniEngine(MeshedGroup[PatroniMember]):
    name = "patroni"
    policies = PATRONI_POLICIES
    default_policy = ASYNCHRONOUS
    first_before_others = True
    poll_s = 0.1
    _etcd: EtcdServer | None = None

    def __init__(self, build: Build, options: EngineOptions) -> None:
        if options.config is not None:
            raise EngineError(
                f"{self.name} gives its servers their settings itself: leave --engine-config out, or use postgres-ha"
            )
        super().__init__(
            build, replace(options, start_timeout_s=max(options.start_timeout_s, START_TIMEOUT_S))
        )

    def _make_servers(self) -> None:
        found = patroni.keepers()
        if found is None:
            raise NotInstalled(f"{self.name} is not installed: {patroni.gaps()[0].reason}. {patroni.COMMAND}")
        cluster.own(self.folder, cluster.identity())
        self._etcd = EtcdServer(found.etcd, replace(self.options, policy=None))
        for _ in range(MEMBERS):
            first = self.servers[0] if self.servers else None
            member = PatroniMember(self.build, self.options, found, first)
            member.etcd_port = self._etcd.port
            self.servers.append(member)
        self._last = self.servers[0]

    def put_proxies_between(self) -> None:
        """Before the first start: from then on `isolate` works. Clients are not behind a proxy."""
        assert self._etcd is not None
        self._mesh = mesh = Mesh()
        for member in self.servers:
            name = member.folder.name
            member.etcd_port = mesh.stand_between(name, _ETCD, self._etcd.port)
            member.seen = mesh.stand_between(_PEERS, name, member.port)
            member.rest_seen = mesh.stand_between(_PEERS, name, member.rest_port)

    def _prepare(self) -> None:
        """The last primary is started first: of those that are there, Patroni would choose another in its absence."""
        assert self._etcd is not None
        self.servers.sort(key=lambda member: member is not self._last)
        if not self._etcd.alive():
            self._etcd.start()

    def _missing(self) -> str | None:
        running = [member for member in self.servers if member.alive() and not member.is_paused]
        leader = next((member for member in running if member.leads()), None)
        if leader is None:
            return "it has no primary"
        self._last = leader
        try:
            leader.ask("SELECT 1")
        except PgError as error:
            return f"a server does not answer ({error})"
        told = leader.members()
        streaming = [one for one in told if one.get("state") == "streaming"]
        if len(streaming) < len(running) - 1:
            return f"{len(streaming)} of {len(running) - 1} standbys stream from {leader.folder.name}"
        waited_for = [one for one in streaming if one["role"] in ("sync_standby", "quorum_standby")]
        if self.policy != ASYNCHRONOUS and not waited_for:
            return "no standby is synchronous yet"
        return None

    def _endpoint_now(self) -> Endpoint:
        now = self.primary().endpoint
        places = ",".join(f"{ports.HOST}:{member.port}" for member in self.servers)
        login = f"postgresql://{now.user}:{now.password}@"
        url = f"{login}{places}/postgres?target_session_attrs=read-write"
        nodes = tuple(f"{login}{ports.HOST}:{member.port}/postgres" for member in self.servers)
        return self._reached_at(now, url, self.primary().port, nodes)

    def stop(self) -> None:
        """The primary last: were it the first, another would take over."""
        with contextlib.suppress(EngineError):
            self._last = self.primary()
        for member in sorted(self.servers, key=lambda member: member is self._last):
            member.stop()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._etcd is not None:
                self._etcd.close()

    # What faults do to it -------------------------------------------------------------------------

    def primary(self) -> PatroniMember:
        for member in self.others():
            if member.leads():
                self._last = member
                return member
        raise EngineError(f"{self.name} has no primary at the moment; its logs end:\n{self.logs(9)}")

    def primaries(self) -> list[PatroniMember]:
        return [self.primary()]

    def standbys(self) -> Sequence[PatroniMember]:
        return self.others(self.primary())

    def has_successor(self, old: PatroniMember) -> bool:
        """Whether another has the lock and takes writes."""
        return any(member.leads() for member in self.others(old))

    def isolate(self, member: PatroniMember) -> None:
        """Cuts it off from etcd and from the others; clients still reach it."""
        self._proxies.cut(member.folder.name, [_ETCD, _PEERS])

    def hold_back(self, primary: PatroniMember, *replicas: PatroniMember) -> None:
        """Nothing that it sends reaches the others, for now: they reach it at one port, so all of them or none."""
        assert not replicas
        self._proxies.cut(primary.folder.name, [_PEERS])


def _interpreter() -> Path:
    """A Python that the servers' user may run: ours or, if that is in a folder of root's, another of this version."""
    version = f"python3.{sys.version_info.minor}"
    found = shutil.which(version, path=os.defpath)
    refusal: EngineError | None = None
    for python in (Path(sys.executable), *([Path(found)] if found else [])):
        try:
            cluster.check_reachable(python.resolve())
        except EngineError as error:
            refusal = refusal or error
            continue
        return python
    assert refusal is not None
    raise EngineError(f"Patroni needs a Python that its servers' user may run: {refusal}")
