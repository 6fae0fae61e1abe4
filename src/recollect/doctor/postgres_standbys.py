"""A PostgreSQL primary and its standbys: who acknowledges, who can catch up, and whether there is one primary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recollect.doctor.diagnosis import Symptom
from recollect.guarantees import promise
from recollect.stores.postgres.durability import waited_for
from recollect.stores.postgres.hosts import Connection

_ANSWERS = """
SELECT (SELECT count(*) FROM pg_stat_replication),
       (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')),
       current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
       current_setting('wal_keep_size')"""
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
    primaries: dict[str, int] = field(default_factory=dict)
    """The hosts of the address that take writes, with their timelines."""

    @property
    def waits_for(self) -> int:
        """How many standbys a commit waits for."""
        return waited_for(self.names) if self.commit in ("on", "remote_write", "remote_apply") else 0


async def ask(connection: Connection, primaries: dict[str, int]) -> StandbyAnswers:
    row = await connection.fetchrow(_ANSWERS)
    assert row is not None
    slots = tuple(LogSlot(*each) for each in await connection.fetch(_SLOTS))
    connected, synchronous, names, commit, wal_keep = row
    return StandbyAnswers(connected, synchronous, names, commit, wal_keep, slots, primaries)


def symptoms(answers: StandbyAnswers) -> Iterable[Symptom | None]:
    yield _two_primaries(answers)
    yield _too_few(answers)
    yield _some_acknowledge(answers)
    yield _not_kept(answers)
    for slot in answers.slots:
        yield _slot(slot)


def _two_primaries(answers: StandbyAnswers) -> Symptom | None:
    if len(answers.primaries) < 2:
        return None
    given = promise("postgres-ha", "asynchronous", "two-primaries")
    newest = max(answers.primaries.values())
    old = [host for host, timeline in answers.primaries.items() if timeline < newest]
    told = ", ".join(f"{host} on timeline {timeline}" for host, timeline in answers.primaries.items())
    return Symptom(
        name="two-primaries",
        level="loss",
        sentence=f"can lose {given.sentence}: {len(answers.primaries)} hosts of this address take writes",
        when=("two-primaries",),
        window="for as long as there are two",
        setting=told,
        procedure=(
            f"stop {', '.join(old) or 'the one that was not meant to be promoted'}: what is written there is lost",
            "make it a standby of the other with pg_rewind or a base backup, before it is started again",
        ),
        source=given.source,
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
    if not 0 < answers.waits_for < answers.connected:
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
