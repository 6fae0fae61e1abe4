"""PostgreSQL data folders: made once by initdb, copied from a template after that; base backups; pg_upgrade.

initdb takes half a second, copying its result a twentieth of that. The templates are kept in the user's cache
folder, one per version, build and user. Each is made in the run folder and moved there with one rename, so that
two concurrent runs never see half of it. Its WAL segments are 1 MB: sixteen times less to copy.

PostgreSQL refuses to run as root. If we are root, all its programs run as `nobody`, who owns the data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from recollect.verify.engines import postgres_spares
from recollect.verify.host import folder, processes
from recollect.verify.host.cache import cache_folder
from recollect.verify.host.errors import EngineError
from recollect.verify.host.processes import Identity, Launch

SUPERUSER = "postgres"
_INITDB = ("-U", SUPERUSER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C", "--wal-segsize=1")
_INITDB_TIMEOUT_S = 120.0
_UPGRADE_TIMEOUT_S = 300.0


def identity() -> Identity | None:
    """Who the server runs as: None for our own user or, if we are root, `nobody` (else `postgres`)."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return Identity(user.pw_uid, user.pw_gid)
    raise EngineError(
        "PostgreSQL does not run as root, and there is neither a user 'nobody' nor 'postgres' to run it as;"
        " run as an ordinary user"
    )


def check_reachable(path: Path) -> None:
    """The other user must be able to enter every folder on the way to the server's program and to its data."""
    who = identity()
    if who is None:
        return
    for parent in reversed(path.absolute().parents):
        if parent.exists() and not _may_enter(who, parent.stat()):
            raise EngineError(
                f"as root, PostgreSQL runs as 'nobody', who may not enter {parent}, which leads to {path};"
                f" run as an ordinary user, or allow it with `chmod o+x {parent}`"
            )


def _may_enter(who: Identity, status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IXUSR if status.st_uid == who.uid else stat.S_IXOTH))


def own(path: Path, who: Identity | None) -> None:
    """Give a folder and everything in it to the server's user: a crash image made by root belongs to root."""
    path.chmod(0o700)
    if who is None or path.stat().st_uid == who.uid:
        return
    for parent, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.chown(Path(parent) / name, who.uid, who.gid, follow_symlinks=False)


def run_tool(
    programs: Path,
    name: str,
    arguments: Sequence[str],
    work: Path,
    timeout_s: float,
    *,
    password: str | None = None,
) -> None:
    """Run one of PostgreSQL's own programs as its user; if it fails, its output is the error."""
    log = work / f"{name}.log"
    # pg_upgrade runs `cp` and `rm`.
    env = {"PATH": os.pathsep.join((str(programs), os.defpath)), "LANG": "C", "LC_ALL": "C"}
    if password is not None:
        env["PGPASSWORD"] = password
    argv = [str(programs / name), *arguments]
    status = processes.run(Launch(argv, log, env, work, identity()), timeout_s)
    if status != 0:
        lines = "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-15:])
        raise EngineError(f"{name} ended with status {status}; its output ends:\n{lines}")


def workspace(parent: Path, name: str) -> Path:
    """A new folder that the server's user may write to."""
    made = folder.subfolder(name, parent)
    own(made, identity())
    return made


def create(data: Path, programs: Path, version: str) -> None:
    """A new cluster in `data`, which must not exist yet."""
    template = _template(programs, version)
    if postgres_spares.take(data, version, template):
        return
    # As root, `cp -a` keeps the owner. It makes reflinks if the file system has them.
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", str(template), str(data)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        last = (done.stderr.strip().splitlines() or ["cp failed"])[-1]
        raise EngineError(
            f"cannot make a PostgreSQL data folder in {data.parent}: {last}; choose another folder"
        )


def _template(programs: Path, version: str) -> Path:
    key = hashlib.sha256(
        repr((str(programs), _INITDB, os.geteuid(), _changed_ns(programs))).encode()
    ).hexdigest()[:12]
    name = f"postgres-{version}-{key}"
    cached = cache_folder() / name
    if (cached / "PG_VERSION").exists():
        return cached
    here = folder.current() / "templates" / name
    if (here / "PG_VERSION").exists():
        return here
    made = initialise(workspace(folder.current(), "initdb"), programs, ())
    return _published(made, cached) or _published(made, here) or made


def _changed_ns(programs: Path) -> int:
    return (programs / "postgres").stat().st_mtime_ns


def _published(made: Path, target: Path) -> Path | None:
    """Move a finished template to its place, or use another run's if it was faster; None if it cannot be kept there."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, draft, symlinks=True)
        own(draft, identity())
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        return target if (target / "PG_VERSION").exists() else None
    return target


def initialise(work: Path, programs: Path, more: Sequence[str]) -> Path:
    data = work / "data"
    run_tool(programs, "initdb", ["-D", str(data), *_INITDB, *more], work, _INITDB_TIMEOUT_S)
    return data


def base_backup(data: Path, programs: Path, socket_folder: Path, port: int) -> None:
    """A copy of a running primary that starts as its streaming replica."""
    work = workspace(data.parent, "basebackup")
    arguments = ["-h", str(socket_folder), "-p", str(port), "-U", SUPERUSER, "-D", str(work / "data")]
    arguments += ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
    run_tool(programs, "pg_basebackup", arguments, work, _UPGRADE_TIMEOUT_S)
    (work / "data").rename(data)
    folder.discard(work)


def control_value(data: Path, programs: Path, label: str) -> str:
    """One line of pg_controldata, such as `Database cluster state`."""
    done = subprocess.run(
        [str(programs / "pg_controldata"), str(data)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": str(programs)},
    )
    for line in done.stdout.splitlines():
        key, _, value = line.partition(":")
        if key == label:
            return value.strip()
    raise EngineError(
        f"pg_controldata does not say {label!r} of {data}: {done.stderr.strip() or 'not a data folder'}"
    )


def upgrade(data: Path, old: Path, new: Path) -> None:
    """pg_upgrade of a cleanly stopped cluster; the result replaces the old one, which is untouched on failure."""
    work = workspace(data.parent, "upgrade")
    checksums = control_value(data, old, "Data page checksum version") != "0"
    # From 18 on checksums are the default, and pg_upgrade wants both sides to match.
    more = ["--data-checksums"] if checksums else []
    if not checksums and control_major(new) >= 18:
        more = ["--no-data-checksums"]
    fresh = initialise(work, new, more)
    sockets = folder.socket_folder(work)
    own(sockets, identity())
    arguments = ["-b", str(old), "-B", str(new), "-d", str(data), "-D", str(fresh), "-U", SUPERUSER]
    run_tool(new, "pg_upgrade", [*arguments, "-s", str(sockets), "--no-sync"], work, _UPGRADE_TIMEOUT_S)
    kept = work / "old"
    data.rename(kept)
    fresh.rename(data)
    folder.discard(work)


def control_major(programs: Path) -> int:
    done = subprocess.run(
        [str(programs / "postgres"), "--version"], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[2].split(".")[0])
