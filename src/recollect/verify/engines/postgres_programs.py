"""Where PostgreSQL's programs are run from.

As root they run as another user, who may not enter folders of root's own, such as an environment in /root. What came as
a wheel is copied from there, once, to where everybody may run it. Any other installation is its owner's business.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import wheel
from recollect.verify.providers.build import Build

SHARED = Path("/var/cache/recollect")


def programs_of(build: Build) -> Path:
    """The folder of the server's program and of its tools, which the server's user may run."""
    program = Path(build.location)
    try:
        cluster.check_reachable(program)
    except EngineError:
        if build.provider != wheel.NAME:
            raise
        with contextlib.suppress(OSError):
            return _copied(program, SHARED)
        raise
    return program.parent


@functools.cache
def _copied(program: Path, shared: Path) -> Path:
    """The same folder in a copy of the installation, beside which the wheel has the libraries that it needs."""
    installation, package, site = program.parents[1:4]
    key = hashlib.sha256(repr((str(program), program.stat().st_mtime_ns)).encode()).hexdigest()[:12]
    home = shared / f"{installation.name}-{key}"
    if not home.exists():
        shared.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shared, prefix=".copying-") as scratch:
            draft = Path(scratch) / "site"
            for part in (installation, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, draft / part.relative_to(site), symlinks=True)
            _let_everybody_in(draft)
            try:
                draft.rename(home)
            except OSError:
                if not home.exists():  # else another run was faster
                    raise
    return home / program.parent.relative_to(site)


def _let_everybody_in(top: Path) -> None:
    """Whatever root's umask was."""
    for parent, _, files in os.walk(top):
        Path(parent).chmod(0o755)
        for name in files:
            file = Path(parent) / name
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
