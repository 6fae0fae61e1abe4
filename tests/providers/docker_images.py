"""Docker images made here from the binaries of this machine, with `docker import`: no registry is asked.

An image is the server, a shell, the libraries that `ldd` names, and the few files that a libc wants.
PostgreSQL's has an entrypoint that does what the official image's does, as far as the tests look.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from docker import DockerClient

from recollect.verify.engines import chroma_server
from recollect.verify.providers.build import Build

_PASSWD = "root:x:0:0::/root:/bin/sh\nredis:x:999:999::/data:/bin/sh\npostgres:x:998:998::/tmp:/bin/sh\n"
_PACKAGES = ("collections", "encodings", "importlib", "re")
"""Of the standard library, beside its modules."""
_GROUP = "root:x:0:\nredis:x:999:\npostgres:x:998:\n"
_ENTRYPOINT = """#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  method="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
  printf '%s' "${POSTGRES_PASSWORD:-none}" > /tmp/password
  @BIN@/initdb -D "$PGDATA" -U "${POSTGRES_USER:-postgres}" --pwfile=/tmp/password --auth-local=trust \
    --auth-host="$method" -E UTF8 --locale=C --no-sync >/dev/null
  printf 'host all all all %s\\n' "$method" >> "$PGDATA/pg_hba.conf"
  if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
    printf 'create database "%s"\\n' "$POSTGRES_DB" | @BIN@/postgres --single -D "$PGDATA" postgres >/dev/null
  fi
fi
[ "$1" = postgres ] && shift
exec @BIN@/postgres -D "$PGDATA" -c listen_addresses='*' -k /tmp "$@"
"""


def libraries(binaries: Iterable[Path]) -> set[Path]:
    found = set()
    for binary in binaries:
        done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            path = re.search(r"=> (/\S+)", line) or re.match(r"\s*(/\S+)", line)
            if path:
                found.add(Path(path[1]))
    return found


class _Root:
    """The tar of a root filesystem; files keep their absolute paths, so that run paths hold."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._stream, mode="w")
        self._seen: set[str] = set()

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
        self._tar.addfile(entry)

    def text(self, path: str, content: str, mode: int = 0o644) -> None:
        entry = tarfile.TarInfo(path.lstrip("/"))
        raw = content.encode()
        entry.size, entry.mode = len(raw), mode
        self._tar.addfile(entry, io.BytesIO(raw))

    def copy(self, source: Path, path: str | None = None) -> None:
        """The file itself, at its own path or another; a link is followed, a folder taken whole."""
        name = (path or str(source)).lstrip("/")
        if name in self._seen:
            return
        self._seen.add(name)
        if source.is_dir():
            for below in sorted(source.iterdir()):
                self.copy(below, f"{name}/{below.name}")
            return
        entry = self._tar.gettarinfo(str(source.resolve()), name)
        entry.uid = entry.gid = 0
        if entry.isreg():
            with source.open("rb") as file:
                self._tar.addfile(entry, file)

    def bytes(self) -> bytes:
        self._tar.close()
        return self._stream.getvalue()


def _base(binaries: Iterable[Path]) -> _Root:
    root = _Root()
    for path in ("/usr/bin", "/etc", "/root"):
        root.folder(path)
    root.folder("/tmp", 0o1777)
    root.folder("/data", 0o755, owner=0)
    root.folder("/var/lib/postgresql", 0o755, owner=998)
    root.text("/etc/passwd", _PASSWD)
    root.text("/etc/group", _GROUP)
    shell = Path(shutil.which("dash") or "/bin/sh").resolve()
    root.copy(shell, "/bin/sh")
    for library in libraries([shell, *binaries]):
        root.copy(library)
        if library.name.startswith("libc.so"):
            # Of the same package, if nobody links with it any more.
            root.copy(library.with_name("libdl.so.2"))
    return root


def _import(client: DockerClient, root: _Root, image: str, changes: list[str]) -> None:
    repository, _, tag = image.rpartition(":")
    client.api.import_image_from_data(root.bytes(), repository=repository, tag=tag, changes=changes)


def import_redis(client: DockerClient, build: Build, image: str) -> None:
    server = Path(build.location)
    name = f"{build.product.lower()}-server"
    root = _base([server])
    root.copy(server, f"/usr/bin/{name}")
    changes = ["WORKDIR /data", "VOLUME /data", "EXPOSE 6379", f'CMD ["{name}", "--protected-mode", "no"]']
    _import(client, root, image, changes)


def import_chroma(client: DockerClient, build: Build, image: str) -> None:
    """Python as far as it takes to load the server's compiled module; the command line is the official image's."""
    python, site = Path(sys.executable).resolve(), Path(build.location).parent
    standard = Path(os.__file__).parent
    module = next((site / "chromadb_rust_bindings").glob("*.so"))
    root = _base([python, module])
    root.copy(python)
    for source in (*standard.glob("*.py"), *(standard / name for name in _PACKAGES)):
        root.copy(source)
    for source in (module, module.with_name("__init__.py")):
        root.copy(source, f"/site/chromadb_rust_bindings/{source.name}")
    root.copy(Path(chroma_server.__file__), "/chroma_server.py")
    entry = [str(python), "-I", "-S", "/chroma_server.py", "/site"]
    changes = ["WORKDIR /data", "VOLUME /data", "EXPOSE 8000", f"ENTRYPOINT {json.dumps(entry)}"]
    _import(client, root, image, [*changes, 'CMD ["run", "--path", "/data", "--host", "0.0.0.0"]'])


def import_postgres(
    client: DockerClient, build: Build, image: str, env: Mapping[str, str] | None = None
) -> None:
    programs = Path(build.location).parent
    home = programs.parent
    share = [folder for folder in (Path("/usr/share/postgresql") / home.name,) if folder.is_dir()]
    needed = [programs / name for name in ("postgres", "initdb", "pg_basebackup")]
    names = ("plpgsql.so", "dict_snowball.so", "libpqwalreceiver.so")
    modules = [module for name in names for module in (home / "lib").rglob(name)]
    root = _base([*needed, *modules])
    for source in [*needed, *modules, home / "share", *share]:
        if source.exists():
            root.copy(source)
    root.text("/entrypoint.sh", _ENTRYPOINT.replace("@BIN@", str(programs)), 0o755)
    changes = ["USER 998", "EXPOSE 5432", 'ENTRYPOINT ["/entrypoint.sh"]', 'CMD ["postgres"]']
    changes += [
        "ENV PGDATA=/var/lib/postgresql/data",
        f"ENV PATH={programs}:/usr/bin:/bin",
        *(f"ENV {key}={value}" for key, value in (env or {}).items()),
    ]
    _import(client, root, image, changes)
