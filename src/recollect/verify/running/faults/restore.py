"""A backup is made under load, the volume is lost, and the backup is put back.

The fault begins when the backup begins: what was acknowledged before that must be there again, what is newer cannot be.
A store that notices that it was set back, as ours does with a witness, refuses to open; the run then does what an
operator does, and removes the witness, so that what was restored is read too.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.host import folder
from recollect.verify.host.errors import EngineError, NotInstalled
from recollect.verify.judging.evidence import NOTICED, UNSAFE_COPY
from recollect.verify.running.faults.backups import BACKUPS, Backup
from recollect.verify.running.faults.fault import (
    WITNESS,
    Fault,
    Witnessed,
    container_of,
    files_obstacle,
    ours_only,
)
from recollect.verify.running.faults.storage import data_folder, empty
from recollect.verify.running.scenario import Scenario

_STEP_S = 0.02
NEWER_LEAST = 10
"""Messages acknowledged after the backup was made."""
NEWER_TIMEOUT_S = 5.0
_USUAL = {"postgres": "pg-dump", "sqlite": "sqlite-backup", "chroma": "folder-copy"}


def backup_of(scenario: Scenario) -> Backup:
    """The one that the variant names, or the usual one of the engine and its policy."""
    usual = _USUAL.get(scenario.engine_kind) or ("rdb-copy" if scenario.policy == "rdb" else "aof-copy")
    return BACKUPS[scenario.variant or usual]


class Restore(Witnessed):
    def strike(self) -> None:
        run, backup = self.run, self._chosen()
        copy = cluster.workspace(folder.current(), "backup")
        run.at_end(lambda: folder.discard(copy))
        with run.striking("restore", backup.name if backup.safe else UNSAFE_COPY):
            self._make(backup, copy)
            self._go_on()
            run.close_clients()  # nobody restores under a running application
            run.stop_engine()
            if (load := backup.load) is not None:
                run.engine.wipe()
                run.start_engine(lambda: load(run.engine, copy))
            else:
                self._put_back(backup, copy)
                run.start_engine()
            run.clients.start_missing()
        if not run.clients.writers:
            self._accept()

    def _chosen(self) -> Backup:
        """For settings of the user's own, by what the server says it keeps."""
        run, scenario = self.run, self.run.scenario
        if scenario.variant or not _asks_redis(scenario):
            return backup_of(scenario)
        keeps = run.engine.settings()
        if keeps["appendonly"] == "yes":
            return BACKUPS["aof-copy"]
        if not keeps["save"]:
            run.skip("with these settings Redis keeps nothing on the disk: there is nothing to restore")
        return BACKUPS["rdb-copy"]

    def _put_back(self, backup: Backup, copy: Path) -> None:
        run, data = self.run, data_folder(self.run)
        assert backup.put_back is not None
        owner = data.stat()
        if run.engine.embedded or run.endpoint.path is None:  # a container's volume stays, emptied
            empty(data)
        else:
            run.engine.wipe()
        backup.put_back(run.engine, data, copy)
        if run.endpoint.path is None:
            _give(data, owner.st_uid, owner.st_gid)

    def _make(self, backup: Backup, copy: Path) -> None:
        """Beside the clients, which go on."""
        run = self.run
        failed: list[Exception] = []

        def make() -> None:
            try:
                backup.make(run.engine, run.endpoint, copy)
            except (EngineError, OSError, shutil.Error) as error:
                failed.append(error)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        while thread.is_alive():
            run.go_on(_STEP_S)
        if failed and isinstance(failed[0], NotInstalled):
            run.skip(str(failed[0]))
        if failed:
            run.give_up(f"the backup {backup.name} could not be made: {failed[0]}")

    def _go_on(self) -> None:
        """Until there is something newer than the backup, even on a slow machine."""
        run, before, end = self.run, self.run.written, time.monotonic() + NEWER_TIMEOUT_S
        run.go_on(run.scenario.before_s / 2)
        while run.written < before + NEWER_LEAST and time.monotonic() < end:
            run.go_on(_STEP_S)

    def _accept(self) -> None:
        """The store refused to open what was restored; an operator accepts it."""
        self.run.remark(
            "the store noticed that it was set back, and refused to open until its witness was removed"
        )
        with self.run.striking("restore", NOTICED):
            (self.run.folder / WITNESS).unlink(missing_ok=True)
            self.run.restart_clients()


def _give(data: Path, uid: int, gid: int) -> None:
    """What was put back belongs to whom the folder belongs to, as a container's server has another user than we."""
    for path in data.rglob("*"):
        os.chown(path, uid, gid, follow_symlinks=False)


def _asks_redis(scenario: Scenario) -> bool:
    return scenario.engine_kind == "redis" and scenario.policy == "custom"


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := ours_only(scenario)) is not None:
        return reason
    backup = backup_of(scenario)
    if backup.engine != scenario.engine_kind:
        return f"{backup.name} is a backup of {backup.engine}, not of {scenario.engine_kind}"
    if container_of(scenario) is not None and backup.load is None:
        if backup.engine == "postgres":
            return (
                "PostgreSQL's images let nobody make a base backup from outside: a dump (pg-dump) is restored"
            )
        if (reason := files_obstacle(scenario)) is not None:
            return reason
    if scenario.engine_kind == "redis" and scenario.policy == "none":
        return "without persistence Redis keeps nothing on the disk: there is nothing to restore"
    if _asks_redis(scenario):
        return None
    if backup.name == "rdb-copy" and scenario.policy != "rdb":
        return "with appendonly yes Redis does not load a dump.rdb: its append-only files are restored (aof-copy)"
    if backup.name == "aof-copy" and scenario.policy == "rdb":
        return "there is no append-only file: a snapshot is restored (rdb-copy)"
    return None


RESTORE_FAULTS = (
    Fault(
        "restore",
        Restore,
        verifies="after a lost volume and a restored backup, what was acknowledged before the backup began is there and"
        " readable; a store with an identity notices that it was set back",
        does_not_verify="what is newer than the backup, which is gone; recovery to a point in time from archived logs;"
        " a backup of yours",
        obstacle=_obstacle,
        variants=("", *BACKUPS),
    ),
)
