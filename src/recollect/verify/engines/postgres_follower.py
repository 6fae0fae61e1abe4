"""A PostgreSQL that follows another one with exact lag, wherever the two run: the stream is cut, what has arrived is
replayed, then replay is paused.

Pausing replay alone would leave the stream running, and a promotion replays what has arrived meanwhile: how much a
failover loses would be a matter of chance.
"""

from __future__ import annotations

from collections.abc import Callable

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.recipe import ReplicaServer
from recollect.verify.host.errors import EngineError
from recollect.verify.host.waiting import wait_until
from recollect.verify.wire.pgwire import Address, Connection, literal

ALL_REPLAYED = (
    "SELECT coalesce(pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn(), false)"
    " OR EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup'"
    " AND wait_event = 'RecoveryRetrieveRetryInterval')"
)
"""Whether it has replayed to the end, or to a record that the cut left incomplete: then it sleeps and retries."""


class PostgresFollower:
    def __init__(
        self,
        server: ReplicaServer,
        addresses: tuple[Address, Address],
        conninfo: Callable[[], str],
        timeout_s: float,
    ) -> None:
        """`addresses` are the replica's and the primary's; `conninfo` is how the replica reaches the primary."""
        self._server = server
        self._own, self._of_primary = addresses
        self._conninfo = conninfo
        self._timeout_s = timeout_s

    @property
    def endpoint(self) -> Endpoint:
        return self._server.endpoint

    def pause_replay(self) -> None:
        with Connection(self._own) as connection:
            self._follow(connection, "")
            wait_until(
                lambda: connection.value("SELECT count(*) FROM pg_stat_wal_receiver") == "0",
                self._timeout_s,
                "the replica did not detach from its primary",
            )
            wait_until(
                lambda: connection.value(ALL_REPLAYED) == "t",
                self._timeout_s,
                "the replica did not replay what it had received",
            )
            connection.ask("SELECT pg_wal_replay_pause()")
            # "pause requested" is not yet a pause.
            wait_until(
                lambda: connection.value("SELECT pg_get_wal_replay_pause_state()") == "paused",
                self._timeout_s,
                "the replica did not pause its replay",
            )

    def resume_replay(self) -> None:
        with Connection(self._own) as connection:
            connection.ask("SELECT pg_wal_replay_resume()")
            self._follow(connection, self._conninfo())
        self.wait_until_streaming()

    def _follow(self, connection: Connection, primary: str) -> None:
        connection.ask(f"ALTER SYSTEM SET primary_conninfo = {literal(primary)}")
        connection.ask("SELECT pg_reload_conf()")

    def wait_caught_up(self, timeout_s: float = 10.0) -> None:
        # A record of our own, flushed, after all that was acknowledged so far: with `async-commit` the end of
        # the WAL is in memory, and nothing unflushed is sent.
        with Connection(self._of_primary) as primary:
            [[mark]] = primary.ask(
                "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'recollect', 'mark')"
            )
        with Connection(self._own) as connection:
            wait_until(
                lambda: connection.value(f"SELECT pg_last_wal_replay_lsn() >= '{mark}'::pg_lsn") == "t",
                timeout_s,
                f"the replica did not reach {mark} of its primary",
            )

    def promote(self) -> Endpoint:
        timeout_s = int(self._timeout_s)
        with Connection(self._own) as connection:
            promoted = connection.value(f"SELECT pg_promote(true, {timeout_s})")
        if promoted != "t":
            raise EngineError(
                f"the replica was not promoted within {timeout_s} s; its log ends:\n{self._server.logs(5)}"
            )
        return self.endpoint

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._server.close()

    def wait_until_streaming(self) -> None:
        with Connection(self._own) as connection:
            wait_until(
                lambda: (
                    connection.value("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'")
                    != "0"
                ),
                self._timeout_s,
                "the replica did not stream from its primary",
            )
