"""Which durability PostgreSQL's settings give, and whether the durability asked for can be reached.

`synchronous_commit` can be set per role, database, session and transaction, so it is read in this session, and every
append enforces it (`commit_mode`) within its own transaction, which also works behind a pooler. The other settings
belong to the server. They can change under an open store, so each append compares them (`fingerprint`) with what the
receipts claim, and is rolled back if they differ.
"""

import re
from dataclasses import dataclass

import asyncpg

from recollect.errors import DurabilityUnavailable
from recollect.guarantees import what_can_be_lost
from recollect.store import Durability, Options

_SETTINGS = """
SELECT current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))"""

_WAITS_FOR_STANDBYS = ("on", "remote_write", "remote_apply")


def waited_for(standby_names: str) -> int:
    """How many standbys `synchronous_standby_names` asks for: 0, a bare list's 1, or the number before the list."""
    if not standby_names.strip():
        return 0
    counted = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", standby_names, re.IGNORECASE)
    return int(counted[1]) if counted else 1


@dataclass(frozen=True)
class PostgresSettings:
    fsync: bool
    full_page_writes: bool
    standby_names: str
    synchronous_commit: str
    standbys_connected: int

    @property
    def fingerprint(self) -> str:
        """As `recollect_append` computes it."""
        return f"{_on(self.fsync)} {_on(self.full_page_writes)} {self.standby_names}"

    @property
    def standbys_waited_for(self) -> int:
        return waited_for(self.standby_names)


@dataclass(frozen=True)
class Reach:
    """The durability that an append reaches, and how."""

    durability: Durability
    replicas: int
    commit_mode: str
    fingerprint: str
    notice: str | None


async def read_settings(connection: asyncpg.Connection, timeout_s: float) -> PostgresSettings:
    row = await connection.fetchrow(_SETTINGS, timeout=timeout_s)
    assert row is not None
    return PostgresSettings(row[0] == "on", row[1] == "on", row[2], row[3], row[4])


def reach(settings: PostgresSettings, options: Options) -> Reach:
    """What was asked for, or `DurabilityUnavailable` with the setting that prevents it."""
    mode = settings.synchronous_commit
    asked = options.durability or Durability.BUFFERED
    if (mode == "off" and asked > Durability.BUFFERED) or (
        options.replicas and mode not in _WAITS_FOR_STANDBYS
    ):
        mode = "on"  # any user may set it for one transaction
    given = _durability(settings, mode)
    if given < asked:
        wrong = "fsync" if not settings.fsync else "full_page_writes"
        raise DurabilityUnavailable(
            f"durability {asked.value!r} is out of reach: PostgreSQL runs with {wrong} = off. Set `{wrong} = on` in "
            "postgresql.conf and reload; after fsync was off, run `sync` on its host or take a fresh base backup"
        )
    replicas = settings.standbys_waited_for if mode in _WAITS_FOR_STANDBYS else 0
    _check_replicas(settings, replicas, options.replicas)
    return Reach(given, replicas, mode, settings.fingerprint, _notice(settings, mode))


def _durability(settings: PostgresSettings, commit_mode: str) -> Durability:
    if commit_mode == "off":
        return Durability.BUFFERED
    return Durability.FSYNCED if settings.fsync and settings.full_page_writes else Durability.WRITTEN


def _check_replicas(settings: PostgresSettings, replicas: int, asked: int) -> None:
    if replicas < asked:
        raise DurabilityUnavailable(
            f"replicas={asked} is out of reach: synchronous_standby_names = {settings.standby_names!r} waits for "
            f"{replicas}. Set `synchronous_standby_names = 'ANY {asked} (*)'` on the primary and reload"
        )
    if asked and settings.standbys_connected < replicas:
        raise DurabilityUnavailable(
            f"replicas={asked} is out of reach: synchronous_standby_names = {settings.standby_names!r} waits for "
            f"{replicas}, but {settings.standbys_connected} synchronous standbys are connected, so every append "
            "would hang. Start the standbys, or name those that run"
        )


def _notice(settings: PostgresSettings, commit_mode: str) -> str | None:
    if settings.fsync and not settings.full_page_writes:
        return "full_page_writes = off: a power loss can tear pages, and with them any memory; set it on"
    policy = "fsync-off" if not settings.fsync else "async-commit" if commit_mode == "off" else "default"
    losses = what_can_be_lost("postgres", policy)
    return f"can lose {losses[0].sentence}; what helps: {losses[0].remedy}" if losses else None


def _on(value: bool) -> str:
    return "on" if value else "off"
