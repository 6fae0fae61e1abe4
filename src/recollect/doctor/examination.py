"""`examine(url)`: what this engine would lose, and how to stop it. Always read-only.

The address selects the engine's module in `recollect.doctor`, which asks for settings and nothing else: no key, row or
file is written, and no setting is changed. Credentials appear nowhere, not even in errors: whatever a driver says is
scrubbed here.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from recollect.doctor.diagnosis import Diagnosis, LoginRefused
from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable, MissingExtra, Refused
from recollect.secret import check_address, scheme_of, scrub, secrets_of, shown

__all__ = ["Diagnosis", "examine", "scrub", "secrets_of", "shown"]

REDIS = ("redis", "rediss", "valkey", "unix")
POSTGRES = ("postgresql", "postgres")
CHROMA = ("http", "https")
KNOWN = (
    "redis://…, redis+cluster://…, redis+sentinel://…, postgresql://…, sqlite:///file.db, chroma:///folder, "
    "http://… (Chroma), or a path"
)


def is_several_servers(scheme: str) -> bool:
    family, _, kind = scheme.partition("+")
    return family in REDIS and kind in ("cluster", "sentinel")


def check_one_server(url: str) -> None:
    """Refuses the addresses of several servers, for what looks into one."""
    scheme = scheme_of(url)
    if not is_several_servers(scheme):
        return
    family, _, kind = scheme.partition("+")
    primaries = (
        "each primary that CLUSTER NODES names"
        if kind == "cluster"
        else "the primary that SENTINEL GET-MASTER-ADDR-BY-NAME names"
    )
    raise Refused(f"{shown(url)} names several servers: give {primaries}, as {family}://host:port")


async def examine(url: str, timeout_s: float = 10.0) -> Diagnosis:
    """The diagnosis of the engine at an address or path.

    Raises `Refused` or `CannotOpen` if there is no engine there, `EngineUnavailable` if it does not answer.
    """
    try:
        return await _examine(url, timeout_s)
    except ImportError as error:
        if isinstance(error, MissingExtra) or (error.name or "").startswith("recollect"):
            raise
        extra = "redis" if error.name == "redis" else "postgres"
        raise MissingExtra(f"a driver is missing ({error.name}): pip install 'recollect[{extra}]'") from None
    except CredentialsRefused as error:
        raise LoginRefused(scrub(f"{shown(url)}: {error.reason}", url)) from None
    except (Refused, EngineUnavailable, CannotOpen) as error:
        raise type(error)(scrub(str(error), url)) from None


async def _examine(url: str, timeout_s: float) -> Diagnosis:
    scheme = scheme_of(url)
    check_address(url)
    if is_several_servers(scheme):
        from recollect.doctor import redis_group

        return await redis_group.examine(url, timeout_s)
    if scheme in REDIS:
        from recollect.doctor import redis

        return await redis.examine(url, timeout_s)
    if scheme in POSTGRES:
        from recollect.doctor import postgres

        return await postgres.examine(url, shown(url), timeout_s)
    if scheme in CHROMA:
        from recollect.doctor import chroma

        return chroma.examine_server(url, shown(url), timeout_s)
    if scheme == "sqlite":
        from recollect.stores.sqlite.file import POLICIES, parse_url

        path, policy = parse_url(url)
        if policy is not None and policy not in POLICIES:
            raise Refused(f"policy {policy!r}: one of {', '.join(POLICIES)}")
        return _of_path(path, f"sqlite:///{path}", policy)
    if scheme == "chroma":
        return _of_path(Path(unquote(urlsplit(url).path)), shown(url), None)
    if scheme in ("", "file"):
        path = Path(unquote(urlsplit(url).path) if scheme else url)
        return _of_path(path, shown(str(path)), None)
    raise Refused(f"no engine for {scheme}://; use {KNOWN}")


def _of_path(path: Path, address: str, policy: str | None) -> Diagnosis:
    """A folder is Chroma's, a file is SQLite's."""
    if path.is_dir():
        from recollect.doctor import chroma

        return chroma.examine_folder(path, address)
    if not path.exists():
        raise CannotOpen(f"{address}: there is no such file or folder; use {KNOWN}")
    from recollect.doctor import sqlite

    return sqlite.examine(path, address, policy)
