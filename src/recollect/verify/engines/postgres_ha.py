"""A PostgreSQL primary with two streaming standbys. Nothing elects: whoever breaks it says who is promoted, and when.

All three begin as copies of one folder, so that no base backup is needed: a standby that starts where its primary
starts gets everything else over the stream. A server that has to give up what it alone knows (an old primary, a standby
that is ahead of the promoted one) is copied anew.

Servers follow each other over their unix sockets. Clients have one address with all three, whoever is primary.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.group import ServerGroup
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.postgres_follower import ALL_REPLAYED
from recollect.verify.engines.protocols import Policy
from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Launch
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers.build import Build
from recollect.verify.wire.pgwire import PgError, literal

STANDBYS = 2
CHANGE_TIMEOUT_S = 30.0
ASYNCHRONOUS, ANY_1, FIRST_2 = "asynchronous", "any-1", "first-2"


def _policy(name: str, waits_for: str) -> Policy:
    settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    settings["synchronous_standby_names"] = waits_for
    return Policy(name, settings, settings)


HA_POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        _policy(ASYNCHRONOUS, ""),
        _policy(ANY_1, "ANY 1 (*)"),
        _policy(FIRST_2, "FIRST 2 (*)"),
    )
}
"""Which standbys a commit waits for."""

_RECEIVED = (
    "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), '0/0'::pg_lsn) - '0/0'::pg_lsn"
)
_NO_STREAM = "SELECT count(*) = 0 FROM pg_stat_wal_receiver"


class HaServer(PostgresEngine):
    """One of the three. `follows` is whom it streams from; None: it is, or was, a primary."""

    name = "postgres-ha"
    policies = HA_POLICIES
    default_policy = ASYNCHRONOUS

    def __init__(self, build: Build, options: EngineOptions, first: HaServer | None) -> None:
        super().__init__(build, options, primary=first)
        self._primary = None  # from a template, not from a base backup
        self.follows: HaServer | None = first

    def _make_cluster(self) -> None:
        self._primary = self.follows if self.follows is not None and self.follows.alive() else None
        super()._make_cluster()

    def _prepare(self) -> None:
        super()._prepare()
        signal = self._data / "standby.signal"
        signal.unlink(missing_ok=True)
        (self._data / "postgresql.auto.conf").write_text(f"primary_conninfo = {literal(self._source)}\n")
        if self.follows is not None:
            signal.touch()
            if (who := cluster.identity()) is not None:
                os.chown(signal, who.uid, who.gid)

    def _launch(self, env: dict[str, str]) -> Launch:
        launch = super()._launch(env)
        more = {
            "cluster_name": self.folder.name,
            "wal_keep_size": "256MB",  # a standby that comes back late finds what it missed
            "wal_receiver_timeout": "5s",
            "hot_standby": "on",
        }
        words = [word for key, value in more.items() for word in ("-c", f"{key}={value}")]
        return Launch([*launch.argv, *words], launch.log, launch.env, launch.cwd, launch.identity)

    @property
    def _source(self) -> str:
        if self.follows is None:
            return ""
        return f"host={self.follows.socket_folder} port={self.follows.port} user={cluster.SUPERUSER}"

    def stream_from(self, primary: HaServer | None) -> None:
        """Changes while it runs whom a standby follows; None: nobody, and nothing more arrives when this returns."""
        self.follows = primary
        self.ask(f"ALTER SYSTEM SET primary_conninfo = {literal(self._source)}")
        self.ask("SELECT pg_reload_conf()")
        if primary is None:
            self.await_stream_end()

    def await_stream_end(self) -> None:
        """Until its stream has ended, and all that arrived is replayed."""
        for sql, otherwise in (
            (_NO_STREAM, "went on receiving"),
            (ALL_REPLAYED, "did not replay what it had received"),
        ):
            wait_until(
                lambda sql=sql: self.ask(sql)[0][0] == "t",  # type: ignore[misc]
                CHANGE_TIMEOUT_S,
                f"{self.folder.name} {otherwise}",
            )

    @property
    def is_standby(self) -> bool:
        return self.ask("SELECT pg_is_in_recovery()")[0][0] == "t"

    @property
    def received(self) -> int:
        """How much of the write-ahead log it has."""
        return int(self.ask(_RECEIVED)[0][0] or 0)


class PostgresHaEngine(ServerGroup[HaServer]):
    name = "postgres-ha"
    policies = HA_POLICIES
    default_policy = ASYNCHRONOUS
    _primary: HaServer

    def _make_servers(self) -> None:
        cluster.own(self.folder, cluster.identity())
        for _ in range(1 + STANDBYS):
            first = self.servers[0] if self.servers else None
            self.servers.append(HaServer(self.build, self.options, first))
        self._primary = self.servers[0]

    def _prepare(self) -> None:
        for server in self.servers:  # all before the first one runs: then all are copies of one template
            server.prepare()

    def _missing(self) -> str | None:
        if not self._primary.alive():
            return "it has no primary"
        try:
            return self._not_streaming()
        except PgError as error:
            return f"a server does not answer ({error})"

    def _not_streaming(self) -> str | None:
        told = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        streaming = int(self._primary.ask(told)[0][0] or 0)
        if streaming < len(self.standbys()):
            return f"{streaming} of {len(self.standbys())} standbys stream from {self._primary.folder.name}"
        return None

    def _endpoint_now(self) -> Endpoint:
        now = self._primary.endpoint
        places = ",".join(f"{ports.HOST}:{server.port}" for server in self.servers)
        login = f"postgresql://{now.user}:{now.password}@"
        url = f"{login}{places}/postgres?target_session_attrs=read-write"
        nodes = tuple(f"{login}{ports.HOST}:{server.port}/postgres" for server in self.servers)
        return self._reached_at(now, url, self._primary.port, nodes)

    def stop(self) -> None:
        """The primary first: it sends what its standbys lack on its way out."""
        for server in sorted(self.servers, key=lambda server: server is not self._primary):
            server.stop()

    # What faults do to it -------------------------------------------------------------------------

    def primary(self) -> HaServer:
        """The one that was promoted last; the first server if none was."""
        return self._primary

    def primaries(self) -> list[HaServer]:
        return [self._primary]

    def standbys(self) -> Sequence[HaServer]:
        """Those that answer."""
        return self.others(self._primary)

    def most_advanced(self) -> HaServer:
        """Whom a cluster manager would choose when the primary is gone: the standby that has received most."""
        for standby in self.standbys():
            standby.await_stream_end()
        return max(self.standbys(), key=lambda standby: standby.received)

    def promote(self, standby: HaServer) -> Endpoint:
        """Makes it the primary. The others are not told: see `reunite`."""
        if standby.ask(f"SELECT pg_promote(true, {CHANGE_TIMEOUT_S:.0f})")[0][0] != "t":
            raise EngineError(
                f"{standby.folder.name} was not promoted within {CHANGE_TIMEOUT_S:g} s; its log ends:\n"
                f"{standby.logs(5)}"
            )
        standby.follows = None
        self._primary = standby
        return self._endpoint_now()

    def bring_back(self, server: HaServer) -> Endpoint:
        """Starts it on its own data, as what it was."""
        server.start()
        return self._endpoint_now()

    def lead(self, standby: HaServer) -> None:
        """Makes a running standby follow the primary, copied anew if it has what the primary never got."""
        standby.stream_from(None)
        replayed = standby.ask("SELECT coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0'::pg_lsn")[0][0]
        if int(replayed or 0) > self._branched_at():
            self.copy_anew(standby)
        else:
            standby.stream_from(self._primary)

    def copy_anew(self, server: HaServer) -> None:
        """Whatever it was, it becomes a standby with a base backup of the primary."""
        server.kill()
        server.wipe()
        server.follows = self._primary
        server.start()

    def reunite(self) -> None:
        """Everybody follows the primary: standbys as they are, where they can; old primaries copied anew."""
        for server in self.servers:
            if server is self._primary:
                continue
            if server.alive() and not server.is_paused and server.is_standby:
                if server.follows is not self._primary:
                    self.lead(server)
            else:
                self.copy_anew(server)

    def _branched_at(self) -> int:
        """Where the log of the primary's timeline leaves the one before; a standby that replayed more cannot follow."""
        newest = (
            "SELECT pg_read_file('pg_wal/' || name) FROM pg_ls_waldir() WHERE name LIKE '%.history'"
            " ORDER BY name DESC LIMIT 1"
        )
        rows = self._primary.ask(newest)
        if not rows:
            return 1 << 63  # never promoted: nobody can be ahead of it
        position = str(rows[0][0]).strip().splitlines()[-1].split("\t")[1]
        high, low = (int(part, 16) for part in position.split("/"))
        return (high << 32) + low
