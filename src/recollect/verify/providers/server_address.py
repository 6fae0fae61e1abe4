"""Where the servers of an address are, and which of several is the primary now.

`redis+cluster://` names some nodes of a cluster, `redis+sentinel://` names sentinels, and `postgresql://` may name
several hosts. A primary is looked for whenever it is needed: meanwhile another one may have taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from recollect.secret import shown, split_address
from recollect.verify.host.errors import EngineError
from recollect.verify.wire import pgwire, resp
from recollect.verify.wire.tls import TlsOptions, tls_options

SENTINEL_PORT = 26379
_TIMELINE = """
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END"""
"""None for a standby; of two primaries, the one that was promoted later has the higher."""


def redis_address(url: str) -> resp.Address:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    if parts.scheme == "unix":
        return resp.Address(
            socket=Path(parts.path),
            username=_decoded(parts.username),
            password=_decoded(parts.password),
            database=_number(url, query.get("db", ["0"])[0]),
        )
    database = parts.path.strip("/") or query.get("db", ["0"])[0]
    return resp.Address(
        host=parts.hostname or "127.0.0.1",
        port=_port(url, parts, 6379),
        username=_decoded(parts.username),
        password=_decoded(parts.password),
        database=_number(url, database),
        tls=_tls(parts),
    )


def postgres_address(url: str) -> pgwire.Address:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    user = _decoded(parts.username) or "postgres"
    host = query.get("host", [parts.hostname or "127.0.0.1"])[0]
    return pgwire.Address(
        port=_number(url, query["port"][0]) if "port" in query else _port(url, parts, 5432),
        socket_folder=Path(host) if host.startswith("/") else None,
        host=host,
        user=user,
        password=_decoded(parts.password),
        database=unquote(parts.path.strip("/")) or user,
    )


def _tls(parts: SplitResult) -> TlsOptions | None:
    return tls_options(parse_qs(parts.query)) if parts.scheme.startswith("rediss") else None


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _number(url: str, text: str) -> int:
    if not text.isdigit():
        raise EngineError(f"{shown(url)}: {text!r} is not a number; write redis://host:6379/15")
    return int(text)


def _port(url: str, parts: SplitResult, default: int) -> int:
    try:
        return parts.port or default
    except ValueError as error:
        raise EngineError(f"{shown(url)}: {error}") from error


# ---- several servers


def places_of(url: str) -> list[str]:
    """The hosts that an address names, each with its port if it has one."""
    parts = split_address(url)
    named = [host for host in parts.netloc.rpartition("@")[2].split(",") if host]
    if named:
        return [unquote(host) for host in named]
    query = parse_qs(parts.query)
    hosts = [host for host in query.get("host", [""])[-1].split(",") if host]
    ports = [port for port in query.get("port", [""])[-1].split(",") if port]
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if ports and len(ports) != len(hosts):
        raise EngineError(
            f"{shown(url)}: {len(hosts)} hosts and {len(ports)} ports; give one for each, or one for all"
        )
    return [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)] if ports else hosts


def nodes_of(url: str) -> list[resp.Address]:
    """The nodes of `redis+cluster://`, with the credentials for them."""
    parts = split_address(url)
    if parts.path.strip("/") not in ("", "0"):
        raise EngineError(f"{shown(url)}: a cluster has only database 0; leave {parts.path} out")
    return _each(url, 6379, database=0)


def sentinels_of(url: str) -> list[resp.Address]:
    """The sentinels of `redis+sentinel://`: they have no databases, and only their own credentials."""
    query = parse_qs(split_address(url).query)
    user, password = (query.get(name, [None])[-1] for name in ("sentinel_username", "sentinel_password"))
    return [replace(one, username=user, password=password) for one in _each(url, SENTINEL_PORT, database=0)]


def service_of(url: str) -> str:
    service = unquote(split_address(url).path.strip("/").partition("/")[0])
    if not service:
        raise EngineError(
            f"{shown(url)} names no service; write redis+sentinel://host:{SENTINEL_PORT}/SERVICE, with the name that "
            "`sentinel monitor` has"
        )
    return service


def _asked_sentinel(at: resp.Address, server: resp.Address, service: str) -> resp.Reply:
    """A sentinel that wants a password gets its own, or else the servers', as the store gives it."""
    question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    login = at if at.password else replace(server, database=0)
    try:
        with resp.Connection(replace(at, username=None, password=None)) as sentinel:
            return sentinel.ask(*question)
    except resp.RespError as error:
        if not str(error).startswith("NOAUTH") or not login.password:
            raise
    with resp.Connection(login) as sentinel:
        return sentinel.ask(*question)


def named_primary(url: str) -> resp.Address:
    """The primary, as the first sentinel that answers names it."""
    service, told = service_of(url), "none answers"
    database = _number(url, split_address(url).path.strip("/").partition("/")[2] or "0")
    for at, server in zip(sentinels_of(url), _each(url, SENTINEL_PORT, database), strict=True):
        try:
            match _asked_sentinel(at, server, service):
                case [str() as host, str() as port]:
                    return replace(server, host=host, port=int(port))
            told = f"they know no service {service!r}"
        except (OSError, resp.RespError) as error:
            told = str(error)
    raise EngineError(f"no sentinel of {shown(url)} names a primary: {told}")


def _each(url: str, port: int, database: int) -> list[resp.Address]:
    parts = split_address(url)
    login, _, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return [
        resp.Address(
            host=host,
            port=given or port,
            username=_decoded(user),
            password=_decoded(password),
            database=database,
            tls=_tls(parts),
        )
        for host, given in (_place(url, place) for place in places_of(url))
    ]


def _place(url: str, place: str) -> tuple[str, int | None]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, ""
    return host.removeprefix("[").removesuffix("]"), _number(url, port) if port else None


def hosts_of(url: str) -> list[pgwire.Address]:
    """The servers of a PostgreSQL address, one or several."""
    [first, *others] = places_of(url) or [""]
    if not others:
        return [postgres_address(url)]
    parts = split_address(url)
    login, _, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    name = _decoded(user) or "postgres"
    return [
        pgwire.Address(
            port=port or 5432,
            socket_folder=Path(host) if host.startswith("/") else None,
            host=host,
            user=name,
            password=_decoded(password),
            database=unquote(parts.path.strip("/")) or name,
        )
        for host, port in (_place(url, place) for place in (first, *others))
    ]


def writing_primary(url: str, hosts: Sequence[pgwire.Address]) -> pgwire.Address:
    """The only host, or of several the one that takes writes and was promoted last."""
    if len(hosts) == 1:
        return hosts[0]
    found: list[tuple[int, pgwire.Address]] = []
    told = "every host that answers is a standby"
    for host in hosts:
        try:
            with pgwire.Connection(host) as connection:
                timeline = connection.value(_TIMELINE)
        except (OSError, pgwire.PgError) as error:
            told = str(error)
            continue
        if timeline is not None:
            found.append((int(timeline), host))
    if not found:
        raise EngineError(f"no host of {shown(url)} takes writes: {told}")
    return max(found, key=lambda one: one[0])[1]
