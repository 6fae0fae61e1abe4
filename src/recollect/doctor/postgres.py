"""PostgreSQL: what a running server's settings would lose.

One read-only transaction. Any role can read the durability settings. `synchronous_commit` is not a single value:
it is looked up for the role and database of the address, and for every role and database with its own setting,
because the application may use another role than the operator who asks.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from recollect.doctor import disk, postgres_standbys
from recollect.doctor.diagnosis import OTHERS_S, Diagnosis, Symptom, after_promotion, loss, ordered
from recollect.doctor.postgres_standbys import StandbyAnswers
from recollect.errors import EngineUnavailable
from recollect.guarantees import promise, what_can_be_lost
from recollect.stores.postgres.errors import DRIVER_ERRORS, short_reason
from recollect.stores.postgres.hosts import Connection, HostsNow, connect, hosts_now, remaining_s

ASKED = (
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "wal_writer_delay",
    "synchronous_standby_names",
    "data_checksums",
    "zero_damaged_pages",
    "wal_level",
)
TABLES_SHOWN = 5

_SETTINGS = "SELECT name, setting, unit, source FROM pg_settings WHERE name = ANY($1)"
_SERVER = """
SELECT current_setting('server_version'), current_user::text, current_database()::text, pg_is_in_recovery(),
       pg_backend_pid(), (SELECT setting FROM pg_settings WHERE name = 'data_directory'),
       (SELECT count(*) FROM pg_stat_replication)"""
_OWN_SETTINGS = """
SELECT coalesce(r.rolname, '')::text, coalesce(d.datname, '')::text, split_part(entry, '=', 2)
FROM pg_db_role_setting s
CROSS JOIN unnest(s.setconfig) AS entry
LEFT JOIN pg_roles r ON r.oid = s.setrole
LEFT JOIN pg_database d ON d.oid = s.setdatabase
WHERE entry LIKE 'synchronous_commit=%'
ORDER BY 1, 2"""
_UNLOGGED = """
SELECT format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relpersistence = 'u' AND c.relkind = 'r'
ORDER BY 1"""

ON_A_DISK = (
    "mount a volume or a disk for the data folder",
    "move the data there with pg_basebackup, or stop the server cleanly and copy it; never start on an empty folder",
)


@dataclass(frozen=True)
class Own:
    """`synchronous_commit` set for a role, a database, or a role in a database."""

    role: str
    database: str
    value: str

    @property
    def whose(self) -> str:
        parts = [
            f"role {self.role}" if self.role else "",
            f"database {self.database}" if self.database else "",
        ]
        return " in ".join(part for part in parts if part) or "every role"

    @property
    def reset(self) -> str:
        if not self.role:
            return f"ALTER DATABASE {_quoted(self.database)} RESET synchronous_commit"
        where = f" IN DATABASE {_quoted(self.database)}" if self.database else ""
        return f"ALTER ROLE {_quoted(self.role)}{where} RESET synchronous_commit"


@dataclass(frozen=True)
class PostgresAnswers:
    address: str
    version: str
    role: str
    database: str
    in_recovery: bool
    folder: str
    mounts: str | None
    standbys: int
    settings: dict[str, str]
    sources: dict[str, str]
    """Where this session's settings come from."""
    wal_writer_delay_s: float
    own: tuple[Own, ...]
    unlogged: tuple[str, ...]
    group: StandbyAnswers = field(default_factory=StandbyAnswers)

    @property
    def own_unlogged(self) -> list[str]:
        """Those of a memory."""
        return [table for table in self.unlogged if table.rpartition(".")[2].startswith("recollect_")]

    @property
    def window_s(self) -> float:
        """What an asynchronous commit can lose: at most three times the WAL writer's delay."""
        return round(3 * self.wal_writer_delay_s, 3)

    @property
    def policy(self) -> str:
        if self.settings["fsync"] != "on":
            return "fsync-off"
        return "async-commit" if self.settings["synchronous_commit"] == "off" else "default"


async def examine(url: str, shown: str, timeout_s: float) -> Diagnosis:
    deadline = time.monotonic() + timeout_s
    connection, hosts = await _reached(url, shown, deadline)
    try:
        async with asyncio.timeout(remaining_s(deadline)):
            async with connection.transaction(readonly=True):
                answers = await _ask(connection, shown)
                group = await postgres_standbys.ask(connection, hosts)
    except DRIVER_ERRORS as error:
        raise EngineUnavailable(f"{shown}: {short_reason(error)}") from None
    finally:
        await _end(connection)
    return diagnose(replace(answers, group=group))


async def _reached(url: str, shown: str, deadline: float) -> tuple[Connection, HostsNow]:
    """The primary, and the hosts of an address with several. A standby's promotion is not waited for."""
    hosts = await _hosts(url, deadline)
    if hosts.standbys and not hosts.primaries:
        told = f"standbys: {', '.join(hosts.standbys)}"
        if hosts.silent:
            told += f"; no answer from {', '.join(hosts.silent)}"
        raise EngineUnavailable(f"{shown}: no primary answers ({told})")
    connection = await connect(url, deadline)
    if hosts.silent and not hosts.primaries:  # all were slow
        hosts = await _hosts(url, deadline)
    return connection, hosts


async def _hosts(url: str, deadline: float) -> HostsNow:
    return await hosts_now(url, time.monotonic() + min(OTHERS_S, remaining_s(deadline)))


async def _end(connection: Connection) -> None:
    try:
        await connection.close(timeout=1.0)
    except DRIVER_ERRORS:
        connection.terminate()


async def _ask(connection: Connection, shown: str) -> PostgresAnswers:
    server = await connection.fetchrow(_SERVER)
    assert server is not None
    rows = {row["name"]: row for row in await connection.fetch(_SETTINGS, list(ASKED))}
    delay = rows["wal_writer_delay"]
    version, role, database, in_recovery, pid, told, standbys = server
    # A backend works in the data folder, so its process shows the path even to a role that may not ask for it. We look
    # now, because the process ends with the connection.
    folder = told or disk.folder_of_process(pid) or ""
    return PostgresAnswers(
        address=shown,
        version=version.split()[0],
        role=role,
        database=database,
        in_recovery=in_recovery,
        folder=folder,
        mounts=disk.mounts_of_process(pid, folder, ("postgres",)) if folder else None,
        standbys=standbys,
        settings={name: rows[name]["setting"] for name in ASKED if name in rows},
        sources={name: rows[name]["source"] for name in ASKED if name in rows},
        wal_writer_delay_s=int(delay["setting"]) / (1000 if delay["unit"] == "ms" else 1),
        own=tuple(Own(*row) for row in await connection.fetch(_OWN_SETTINGS)),
        unlogged=tuple(row[0] for row in await connection.fetch(_UNLOGGED)),
    )


def diagnose(answers: PostgresAnswers) -> Diagnosis:
    symptoms: Iterable[Symptom | None] = [
        _fsync(answers),
        _full_page_writes(answers),
        _asynchronous(answers),
        *(_own(answers, own) for own in answers.own),
        _unlogged(answers),
        _standbys(answers),
        *(() if answers.in_recovery else postgres_standbys.symptoms(answers.group)),
        _recovery(answers),
        _damage(answers),
        _checksums(answers),
        _disk(answers),
        _session(answers),
    ]
    if answers.in_recovery:
        symptoms = after_promotion(symptoms)
    return Diagnosis(
        address=answers.address,
        engine="postgres",
        version=answers.version,
        policy=answers.policy,
        settings={**answers.settings, "unlogged-tables": ", ".join(answers.own_unlogged) or "none"},
        findings=ordered(symptoms),
    )


def _fsync(answers: PostgresAnswers) -> Symptom | None:
    if answers.settings["fsync"] == "on":
        return None
    return loss(
        what_can_be_lost("postgres", "fsync-off")[0],
        name="fsync-off",
        window="anything, of any age",
        window_s=None,
        setting="fsync = off",
        procedure=(
            _set(answers, "fsync", "on"),
            "what was written before is still only in the kernel's memory: CHECKPOINT, then `sync` on the "
            "engine's machine (or stop it and run `initdb --sync-only -D <data folder>`)",
            "take a fresh base backup: one taken while fsync was off may be damaged",
        ),
    )


def _full_page_writes(answers: PostgresAnswers) -> Symptom | None:
    if answers.settings["full_page_writes"] == "on":
        return None
    return Symptom(
        name="full-page-writes-off",
        level="loss",
        sentence="can lose any page that was being written when the power failed, and with it any memory: torn "
        "pages cannot be repaired from the log",
        when=("power-loss",),
        window="any age",
        setting="full_page_writes = off",
        procedure=(
            _set(answers, "full_page_writes", "on"),
            "CHECKPOINT: from then on every page's first change is logged whole",
        ),
        source="PostgreSQL documentation, 19.5 Write Ahead Log: full_page_writes",
    )


def _asynchronous(answers: PostgresAnswers) -> Symptom | None:
    """For a session of this address; settings of other roles and databases have their own symptoms."""
    if answers.settings["synchronous_commit"] != "off":
        return None
    source = answers.sources["synchronous_commit"]
    if source in ("user", "database", "database user"):
        return None
    reset = _set(answers, "synchronous_commit", "on")
    if source in ("client", "session", "override"):
        reset = (
            "take synchronous_commit out of the address (or of PGOPTIONS): the connection itself asks for it"
        )
    return _lost_commits(
        answers,
        name="asynchronous-commit",
        setting=f"synchronous_commit = off ({source})",
        whose="",
        procedure=(reset, "open sessions keep their setting: reconnect"),
    )


def _own(answers: PostgresAnswers, own: Own) -> Symptom | None:
    if own.value != "off":
        return None
    concerns = (not own.role or own.role == answers.role) and (
        not own.database or own.database == answers.database
    )
    return _lost_commits(
        answers,
        name=f"asynchronous-commit-of-{'role' if own.role else 'database'}",
        setting=f"synchronous_commit = off for {own.whose}",
        whose=f"when {own.whose} writes" + (" (this address does)" if concerns else "") + ", ",
        procedure=(own.reset, "open sessions keep their setting: reconnect"),
    )


def _lost_commits(
    answers: PostgresAnswers, *, name: str, setting: str, whose: str, procedure: tuple[str, ...]
) -> Symptom:
    given = what_can_be_lost("postgres", "async-commit")[0]
    delay_ms = answers.wal_writer_delay_s * 1000
    return Symptom(
        name=name,
        level="loss",
        sentence=f"{whose}can lose the last commits, at most three times wal_writer_delay ({delay_ms:.0f} ms), "
        "also when only the server process dies",
        when=("kill-engine", "power-loss"),
        window=f"up to {answers.window_s:g} s",
        window_s=answers.window_s,
        setting=setting,
        procedure=(
            *procedure,
            "or leave it: open_store(url, durability='fsynced') asks for a synchronous commit in each append",
        ),
        source=given.source,
    )


def _unlogged(answers: PostgresAnswers) -> Symptom | None:
    if not answers.unlogged:
        return None
    shown = ", ".join(answers.unlogged[:TABLES_SHOWN])
    more = len(answers.unlogged) - TABLES_SHOWN
    return Symptom(
        name="unlogged-tables",
        level="loss",
        sentence=f"can lose everything in {shown}{f' and {more} more' if more > 0 else ''}: an UNLOGGED table is "
        "emptied after a crash, and never reaches a standby",
        when=("kill-engine", "power-loss", "failover"),
        window="everything in them",
        setting=f"{len(answers.unlogged)} UNLOGGED tables in database {answers.database}",
        procedure=tuple(f"ALTER TABLE {table} SET LOGGED" for table in answers.unlogged[:TABLES_SHOWN]),
        source="PostgreSQL documentation, CREATE TABLE: UNLOGGED",
    )


def _standbys(answers: PostgresAnswers) -> Symptom | None:
    names = answers.settings["synchronous_standby_names"].strip()
    commit = answers.settings["synchronous_commit"]
    waits = bool(names) and commit in ("on", "remote_write", "remote_apply")
    if not answers.standbys or waits:
        return None
    if answers.group.by_patroni:
        return postgres_standbys.lost_by_patroni(answers.group)
    given = promise("postgres", "default", "failover")
    setting = (
        f"{answers.standbys} standbys, synchronous_standby_names = '{names}', synchronous_commit = {commit}"
    )
    return Symptom(
        name="failover",
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=("failover",),
        window="as far as the standby is behind",
        setting=setting,
        procedure=(
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)', then SELECT pg_reload_conf(); commits "
            "then wait for a standby, so have two, or a dead standby stops every write",
            "with synchronous_commit = on (not local, not off) for the roles that write memory",
        ),
        source=given.source,
    )


def _recovery(answers: PostgresAnswers) -> Symptom | None:
    if not answers.in_recovery:
        return None
    return Symptom(
        name="is-a-standby",
        level="cannot-tell",
        sentence="cannot tell what is lost: this is a standby, and writes are acknowledged by its primary",
        procedure=("examine the primary",),
    )


def _damage(answers: PostgresAnswers) -> Symptom | None:
    if answers.settings.get("zero_damaged_pages") != "on":
        return None
    return Symptom(
        name="zero-damaged-pages",
        level="loss",
        sentence="can lose whole pages silently: a damaged page is read as empty instead of raising an error",
        window="any age",
        setting="zero_damaged_pages = on",
        procedure=("ALTER SYSTEM RESET zero_damaged_pages, then SELECT pg_reload_conf()",),
        source="PostgreSQL documentation, 19.17 Developer Options: zero_damaged_pages",
    )


def _checksums(answers: PostgresAnswers) -> Symptom | None:
    if answers.settings.get("data_checksums") != "off":
        return None
    return Symptom(
        name="no-checksums",
        level="note",
        sentence="damage on the disk would not be noticed: pages have no checksums",
        setting="data_checksums = off",
        procedure=("stop the server cleanly, run `pg_checksums --enable`, start it",),
    )


def _disk(answers: PostgresAnswers) -> Symptom | None:
    return disk.look_at(answers.folder, answers.mounts, ON_A_DISK)


def _session(answers: PostgresAnswers) -> Symptom:
    return Symptom(
        name="session-settings",
        level="note",
        sentence="an application can still SET synchronous_commit = off in its own sessions; that cannot be "
        "seen from here",
        procedure=(
            "search its code for synchronous_commit; receipts of recollect's own store tell the truth",
        ),
    )


def _set(answers: PostgresAnswers, name: str, value: str) -> str:
    """How to change a server setting, depending on where it was set: the command line beats ALTER SYSTEM."""
    if answers.sources.get(name) == "command line":
        return (
            f"take `-c {name}=…` off the server's command line (ALTER SYSTEM cannot override it) "
            "and restart it cleanly"
        )
    if answers.group.by_patroni:
        return f"patronictl edit-config -p {name}={value}"
    return f"ALTER SYSTEM SET {name} = {value}, then SELECT pg_reload_conf()"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'
