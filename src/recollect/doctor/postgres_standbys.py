"""A PostgreSQL primary and its standbys: who acknowledges, who can catch up, and whether there is one primary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recollect.doctor.diagnosis import Symptom
from recollect.guarantees import promise
from recollect.printable import counted
from recollect.stores.postgres.durability import waited_for
from recollect.stores.postgres.hosts import Connection, HostsNow

_ANSWERS = """
SELECT (SELECT count(*) FROM pg_stat_replication),
       (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')),
       current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       current_setting('wal_keep_size'),
       EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'Patroni%')"""
_SLOTS = """
SELECT slot_name::text, active, coalesce(wal_status, '') FROM pg_replication_slots
WHERE slot_type = 'physical' ORDER BY 1"""


@dataclass(frozen=True)
class LogSlot:
    """A standby's place in the log, which is kept for it."""

    name: str
    active: bool
    state: str


@dataclass(frozen=True)
class StandbyAnswers:
    connected: int = 0
    synchronous: int = 0
    names: str = ""
    commit: str = "on"
    wal_keep: str = "0"
    slots: tuple[LogSlot, ...] = ()
    hosts: HostsNow = field(default_factory=HostsNow)
    by_patroni: bool = False
    """Patroni is connected: it chooses who is promoted, and which standbys acknowledge."""

    @property
    def waits_for(self) -> int:
        """How many standbys a commit waits for."""
        return waited_for(self.names) if self.commit in ("on", "remote_write", "remote_apply") else 0


async def ask(connection: Connection, hosts: HostsNow) -> StandbyAnswers:
    row = await connection.fetchrow(_ANSWERS)
    assert row is not None
    slots = tuple(LogSlot(*each) for each in await connection.fetch(_SLOTS))
    connected, synchronous, names, commit, wal_keep, by_patroni = row
    return StandbyAnswers(connected, synchronous, names, commit, wal_keep, slots, hosts, by_patroni)


def symptoms(answers: StandbyAnswers) -> Iterable[Symptom | None]:
    yield _two_primaries(answers)
    yield _lonely(answers)
    yield _silent(answers)
    yield _too_few(answers)
    yield _some_acknowledge(answers)
    yield _not_kept(answers)
    yield _managed(answers)
    for slot in answers.slots:
        yield _slot(slot)


def _two_primaries(answers: StandbyAnswers) -> Symptom | None:
    primaries = answers.hosts.primaries
    if len(primaries) < 2:
        return None
    given = promise("postgres-ha", "asynchronous", "two-primaries")
    newest = max(primaries.values())
    old = [host for host, timeline in primaries.items() if timeline < newest]
    told = ", ".join(f"{host} on timeline {timeline}" for host, timeline in primaries.items())
    return Symptom(
        name="two-primaries",
        level="loss",
        sentence=f"can lose {given.sentence}: {len(primaries)} hosts of this address take writes",
        when=("two-primaries",),
        window="for as long as there are two",
        setting=told,
        procedure=(
            f"stop {', '.join(old) or 'the one that was not meant to be promoted'}: what is written there is lost",
            "make it a standby of the other with pg_rewind or a base backup, before it is started again",
        ),
        source=given.source,
    )


def _lonely(answers: StandbyAnswers) -> Symptom | None:
    """No loss where commits wait for standbys that follow, or where Patroni chooses whom to promote."""
    lonely = answers.hosts.lonely
    if not lonely:
        return None
    given = promise("postgres-ha", "asynchronous", "promoted-behind")
    return Symptom(
        name="standbys-left-behind",
        level="note" if answers.waits_for or answers.by_patroni else "loss",
        sentence="can lose everything since they were cut off, if one of these standbys is promoted: no server sends "
        f"them the log ({', '.join(lonely)})",
        when=("promoted-behind",),
        window="no bound",
        setting=f"{counted(answers.connected, 'standby')} of this primary connected",
        procedure=(
            "let them follow this primary: primary_conninfo, and recovery_target_timeline = 'latest'",
            "one that went another way, as its log says, is copied anew with pg_rewind or a base backup",
        ),
        source=given.source,
    )


def _silent(answers: StandbyAnswers) -> Symptom | None:
    if not answers.hosts.silent:
        return None
    return Symptom(
        name="servers-that-do-not-answer",
        level="note",
        sentence=f"hosts of this address that do not answer: {', '.join(answers.hosts.silent)}",
        procedure=("start them, or take them out of the address; then examine again",),
    )


def _too_few(answers: StandbyAnswers) -> Symptom | None:
    if answers.synchronous >= answers.waits_for:
        return None
    return Symptom(
        name="too-few-standbys",
        level="note",
        sentence=f"every commit waits: {answers.waits_for} standbys have to acknowledge, and {answers.synchronous} "
        "are there",
        setting=f"synchronous_standby_names = '{answers.names}'",
        procedure=("start the standbys, or name those that run",),
        source="PostgreSQL documentation, 27.2.8 Synchronous Replication: planning for high availability",
    )


def _some_acknowledge(answers: StandbyAnswers) -> Symptom | None:
    """Patroni promotes only a standby that has acknowledged, and stops the old primary."""
    if answers.by_patroni or not 0 < answers.waits_for < answers.connected:
        return None
    given = promise("postgres-ha", "any-1", "promoted-behind")
    return Symptom(
        name="some-standbys-acknowledge",
        level="note",
        sentence=f"{answers.waits_for} of {answers.connected} standbys acknowledge: if another one is promoted, or the "
        "old primary goes on, what they acknowledged is lost",
        setting=f"synchronous_standby_names = '{answers.names}'",
        procedure=(
            "let the cluster manager promote only a standby that has received most, and fence the old primary first",
            f"or ALTER SYSTEM SET synchronous_standby_names = 'FIRST {answers.connected} (*)': all acknowledge, and "
            "one that is down stops every write",
        ),
        source=given.source,
    )


def _not_kept(answers: StandbyAnswers) -> Symptom | None:
    held = any(slot.active for slot in answers.slots)
    if not answers.connected or held or answers.wal_keep not in ("0", "0MB"):
        return None
    return Symptom(
        name="log-not-kept",
        level="note",
        sentence="a standby that is away for a while may not catch up again: nothing keeps the log for it",
        setting=f"wal_keep_size = {answers.wal_keep}, no replication slot in use",
        procedure=(
            "a replication slot for each standby, or ALTER SYSTEM SET wal_keep_size = '1GB'; or an archive",
        ),
        source="PostgreSQL documentation, 19.6 Replication: wal_keep_size",
    )


def _managed(answers: StandbyAnswers) -> Symptom | None:
    if not answers.by_patroni:
        return None
    return Symptom(
        name="patroni",
        level="note",
        sentence="Patroni keeps the settings: what ALTER SYSTEM changes gets in its way. How far behind a standby may "
        "be when it is promoted (maximum_lag_on_failover), and whether writes go on without a synchronous one "
        "(synchronous_mode_strict), cannot be seen from here",
        setting=f"synchronous_standby_names = '{answers.names}'",
        procedure=("patronictl show-config shows them, patronictl edit-config changes them",),
        source="Patroni documentation, Dynamic configuration settings",
    )


def lost_by_patroni(answers: StandbyAnswers) -> Symptom:
    """Its standbys do not acknowledge."""
    given = promise("patroni", "asynchronous", "node-kill")
    return Symptom(
        name="failover",
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=("node-kill", "isolate-primary", "promoted-behind"),
        window="as far as the standby is behind; beside a primary that is cut off, up to Patroni's ttl",
        setting=f"{answers.connected} standbys, synchronous_standby_names = '{answers.names}', "
        f"synchronous_commit = {answers.commit}",
        procedure=(
            "patronictl edit-config -s synchronous_mode=true (or quorum, from Patroni 4 on); with "
            "synchronous_mode_strict=true, too, nothing is acknowledged while no standby is there",
            "with synchronous_commit = on (not local, not off) for the roles that write memory",
        ),
        source=given.source,
    )


def _slot(slot: LogSlot) -> Symptom | None:
    if slot.active:
        return None
    lost = slot.state == "lost"
    return Symptom(
        name="slot-lost" if lost else "slot-unused",
        level="note",
        sentence=f"the standby of the replication slot {slot.name} has to be copied anew: its log is gone"
        if lost
        else f"nobody uses the replication slot {slot.name}: the log is kept for it until the disk is full",
        setting=f"slot {slot.name}: {slot.state or 'inactive'}",
        procedure=(
            "start its standby, or SELECT pg_drop_replication_slot(…); max_slot_wal_keep_size bounds what is kept",
        ),
        source="PostgreSQL documentation, 27.2.6 Replication Slots",
    )
