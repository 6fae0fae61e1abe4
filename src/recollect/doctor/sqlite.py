"""SQLite: what a file shows without being opened.

Even a read-only connection may create the WAL's shared memory beside the file, so only bytes are read: the header says
whether the file is in WAL mode, and the files beside it say the rest. `synchronous`, on which everything depends, is
set by each connection and stored nowhere: it stays unknown unless the address names one of recollect's own policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recollect.doctor import disk
from recollect.doctor.diagnosis import Diagnosis, Symptom, loss, ordered
from recollect.errors import CannotOpen
from recollect.filesystems import mountinfo_of
from recollect.guarantees import what_can_be_lost
from recollect.raw_reading import first_bytes
from recollect.regular_files import open_file

MAGIC = b"SQLite format 3\x00"
HOT_JOURNAL = bytes.fromhex("d9d505f920a163d7")
WAL_VERSION = 2

ON_A_DISK = (
    "move the file to a local disk: stop every program that has it open, copy it with its -wal file (or with "
    "`sqlite3 old.db '.backup new.db'`), and change the address",
)


@dataclass(frozen=True)
class SqliteAnswers:
    address: str
    path: Path
    journal: str
    """`wal` or `rollback`: the file does not say which of the rollback modes."""
    beside: str
    """What the journal beside it shows."""
    wal_bytes: int
    policy: str | None
    """The policy that the address names."""
    mounts: str | None


def examine(path: Path, address: str, policy: str | None) -> Diagnosis:
    return diagnose(read(path, address, policy, mountinfo_of()))


def read(path: Path, address: str, policy: str | None, mounts: str | None) -> SqliteAnswers:
    try:
        header = first_bytes(path, 100)
    except OSError as error:
        raise CannotOpen(f"{address}: {error.strerror}") from None
    if header and not header.startswith(MAGIC):
        raise CannotOpen(f"{address}: not an SQLite file (it begins with {header[:16]!r})")
    wal = len(header) > 18 and header[18] == WAL_VERSION
    wal_bytes = _size(_beside(path, "-wal"))
    return SqliteAnswers(
        address=address,
        path=path,
        journal="wal" if wal else "rollback",
        beside=_journal_beside(path),
        wal_bytes=wal_bytes,
        policy=policy,
        mounts=mounts,
    )


def _beside(path: Path, suffix: str) -> Path:
    real = path.resolve()  # behind a link, it is beside what the link names
    return real.with_name(real.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _journal_beside(path: Path) -> str:
    """`hot` (a transaction is running or was interrupted), `truncate`, `persist`, or empty."""
    try:
        with open_file(_beside(path, "-journal")) as file:
            head = file.read(8)
    except OSError:
        return ""
    return "hot" if head == HOT_JOURNAL else "persist" if head else "truncate"


def diagnose(answers: SqliteAnswers) -> Diagnosis:
    symptoms = [
        _policy(answers) if answers.policy else _synchronous(answers),
        _mismatch(answers),
        _interrupted(answers),
        _disk(answers),
    ]
    return Diagnosis(
        address=answers.address,
        engine="sqlite",
        version="",
        policy=answers.policy,
        settings={
            "journal": answers.journal,
            "wal_bytes": str(answers.wal_bytes),
            **({"journal_file": answers.beside} if answers.beside else {}),
        },
        findings=ordered(symptoms),
    )


def _policy(answers: SqliteAnswers) -> Symptom | None:
    """For an address that names a policy, which recollect's store sets on every connection."""
    assert answers.policy is not None
    losses = what_can_be_lost("sqlite", answers.policy)
    if not losses:
        return None
    given = losses[0]
    last = given.turns_max is not None
    window = (
        "the last commit"
        if last
        else f"since the last checkpoint; the WAL has {answers.wal_bytes:,} bytes now"
    )
    return loss(
        given,
        name=f"policy-{answers.policy}",
        window=window,
        window_s=None,
        setting=f"?policy={answers.policy}",
        procedure=(
            "leave ?policy= out of the address, or use ?policy=wal-full; the store changes the journal mode by "
            "itself, without losing anything",
        ),
    )


def _synchronous(answers: SqliteAnswers) -> Symptom:
    if answers.journal == "wal":
        return Symptom(
            name="synchronous-hidden",
            level="cannot-tell",
            sentence="cannot tell what is lost: the file is in WAL mode, and `synchronous` belongs to each "
            "connection. With FULL nothing; with NORMAL every commit since the last checkpoint, when the power "
            "fails; with OFF anything",
            when=("power-loss",),
            window=f"with NORMAL since the last checkpoint: the WAL has {answers.wal_bytes:,} bytes now",
            setting="journal_mode = wal",
            procedure=(
                "PRAGMA synchronous = FULL on every connection, right after it is opened (FULL is the default "
                "of a plain build; PRAGMA synchronous, asked by the application itself, tells: 2 is FULL, 1 "
                "NORMAL, 0 OFF)",
                f"or open_store('sqlite:///{answers.path}'), which sets FULL on every connection",
            ),
            source=what_can_be_lost("sqlite", "wal-normal")[0].source,
        )
    mode = {
        "truncate": "truncate, by the empty journal beside it",
        "persist": "persist, by the journal beside it",
    }
    known = mode.get(answers.beside, "one of delete, truncate, persist, memory, off")
    return Symptom(
        name="synchronous-hidden",
        level="cannot-tell",
        sentence=f"cannot tell what is lost: the file has a rollback journal ({known}), and mode and "
        "`synchronous` belong to each connection. With delete and FULL, the defaults, a power loss can take the "
        "last acknowledged commit; with EXTRA nothing; with journal_mode off or memory a crash can destroy the "
        "file",
        when=("power-loss",),
        window="with the defaults the last commit",
        setting=f"rollback journal ({known})",
        procedure=(
            "PRAGMA journal_mode = WAL once (it is kept in the file), then PRAGMA synchronous = FULL on every "
            "connection",
            "or keep the rollback journal with PRAGMA synchronous = EXTRA on every connection",
            f"or open_store('sqlite:///{answers.path}'), which does the first",
        ),
        source=what_can_be_lost("sqlite", "delete-full")[0].source,
    )


def _mismatch(answers: SqliteAnswers) -> Symptom | None:
    if answers.policy is None:
        return None
    wanted = "wal" if answers.policy.startswith("wal") else "rollback"
    if wanted == answers.journal:
        return None
    return Symptom(
        name="other-journal",
        level="note",
        sentence=f"the file is in {answers.journal} mode now; ?policy={answers.policy} changes that when the "
        "store opens",
    )


def _interrupted(answers: SqliteAnswers) -> Symptom | None:
    if answers.beside != "hot":
        return None
    return Symptom(
        name="hot-journal",
        level="note",
        sentence="a transaction is under way, or was interrupted: the journal beside the file must stay with "
        "it, or the file is damaged",
        procedure=(
            "never delete or move the -journal file alone; the next program that opens the file rolls it back",
        ),
    )


def _disk(answers: SqliteAnswers) -> Symptom | None:
    return disk.look_at(str(answers.path.resolve().parent), answers.mounts, ON_A_DISK)
