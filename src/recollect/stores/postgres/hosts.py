"""Connecting to PostgreSQL: the primary among the hosts of an address.

All hosts are asked at the same time, so that one that hangs does not hide the others. If several take writes, the one
with the highest timeline wins: every promotion begins a new timeline, so the others were promoted earlier, and what is
written to them is lost. Once one has answered, the others have `GRACE_S` to do so. While only standbys answer, a
promotion may be in progress: they are asked again until time runs out.

`?prepared=no` is for a pooler that mixes up prepared statements (PgBouncer below 1.21 in transaction mode): then every
statement is parsed anew and has no name.

An address with one host is left to asyncpg, as are hosts from the environment or a service file. The timeline is
checked there too, so that a name that leads back to an old primary is noticed.
"""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import asyncpg

from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable, RecollectError
from recollect.secret import check_address
from recollect.stores.postgres.errors import DRIVER_ERRORS, UNREACHABLE, short_reason

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

GRACE_S = 0.2
"""How long the other hosts may take to answer after a primary has."""

RETRY_S = 0.05
"""Pause before a server that is starting, or a group without a primary, is asked again."""

DEFAULT_PORT = 5432

_PREPARED = "prepared"
"""The option of an address that is ours and not asyncpg's."""

_TIMELINE = """
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END"""

_RECEIVES = "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)"


@dataclass(frozen=True)
class Connected:
    """A connection and its server's timeline, which every promotion raises; None for a standby."""

    connection: Connection
    timeline: int | None


class OldPrimary(EngineUnavailable):
    """The only server that answers is an older primary than the one already seen."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"PostgreSQL: an old primary answers (timeline {found}; this store has seen {known}), and what is written "
            "to it would be lost. Stop it, or make it a standby; if it was restored on purpose, open the store again"
        )


def hosts_of(url: str) -> list[dict[str, Any]]:
    """The hosts that an address names, as arguments of `asyncpg.connect`; empty if they are left to asyncpg."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    named = [unquote(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    if named == [""]:
        named = (query.get("host") or [""])[-1].split(",")
    if named == [""]:
        return []
    if "" in named:
        raise CannotOpen("PostgreSQL: a host in the list has no name; is there a comma too many?")
    ports = [int(port) for port in (query.get("port") or [""])[-1].split(",") if port] or [DEFAULT_PORT]
    if len(ports) == 1:
        ports *= len(named)
    return [_host(name, port) for name, port in zip(named, ports, strict=True)]


def _host(name: str, port: int) -> dict[str, Any]:
    if name.startswith("/"):
        return {"host": name, "port": port}
    host, colon, given = name.rpartition(":")
    if not colon or name.endswith("]"):
        host, given = name, ""
    return {"host": host.removeprefix("[").removesuffix("]"), "port": int(given) if given else port}


async def connect(url: str, deadline: float) -> Connection:
    """A connection to the primary, or to a single host whatever it is; `EngineUnavailable` if there is none."""
    return (await connect_newest(url, deadline)).connection


async def connect_newest(url: str, deadline: float, known: int = 0) -> Connected:
    """The same with its timeline, which is never below the known one."""
    check_address(url)
    hosts = _several(url)
    while True:
        found = await (_ask_all(url, hosts, deadline) if hosts else _ask(url, {}, deadline))
        if found is not None and not _outdated(found, known):
            return found
        if found is not None:
            found.connection.terminate()
        if remaining_s(deadline) <= RETRY_S:
            if found is not None:
                raise OldPrimary(found.timeline or 0, known)
            raise EngineUnavailable(
                "PostgreSQL: every host that answers is a standby; none was promoted in time"
            )
        await asyncio.sleep(RETRY_S)


async def connect_standby(url: str, deadline: float) -> Connection:
    """A connection to read from: a standby that answers if there are several hosts, otherwise the only host."""
    check_address(url)
    hosts = _several(url)
    if not hosts:
        return (await _ask(url, {}, deadline)).connection
    asking = {asyncio.create_task(_ask(url, host, deadline)) for host in hosts}
    standby: Connected | None = None
    try:
        while asking and standby is None:
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                asking.remove(task)
                if isinstance(task.exception(), RecollectError):
                    continue
                if standby is None and task.result().timeline is None:
                    standby = task.result()
                else:
                    task.result().connection.terminate()
        await _let_go(asking)
    except BaseException:
        _terminate(standby)
        await _let_go(asking)
        raise
    if standby is None:
        raise EngineUnavailable("PostgreSQL: no host of read_url answers as a standby")
    return standby.connection


@dataclass(frozen=True)
class HostsNow:
    """The hosts of an address with several, and what each of them is now."""

    primaries: dict[str, int] = field(default_factory=dict)
    """Those that take writes, with their timelines."""
    lonely: tuple[str, ...] = ()
    """Standbys that receive nothing from anybody."""
    silent: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()


async def hosts_now(url: str, deadline: float) -> HostsNow:
    hosts = _several(url)
    each = await asyncio.gather(*(_ask(url, host, deadline) for host in hosts), return_exceptions=True)
    primaries: dict[str, int] = {}
    lonely, silent, standbys = [], [], []
    for host, answer in zip(hosts, each, strict=True):
        place = f"{host['host']}:{host['port']}"
        if isinstance(answer, RecollectError):
            silent.append(place)
        elif isinstance(answer, BaseException):
            raise answer
        elif answer.timeline is not None:
            primaries[place] = answer.timeline
            answer.connection.terminate()
        else:
            standbys.append(place)
            if not await _receives(answer.connection, deadline):
                lonely.append(place)
    return HostsNow(primaries, tuple(lonely), tuple(silent), tuple(standbys))


async def _receives(standby: Connection, deadline: float) -> bool:
    """Whether a primary, or another standby, sends it the log; yes if it does not say."""
    try:
        return bool(await standby.fetchval(_RECEIVES, timeout=remaining_s(deadline)))
    except DRIVER_ERRORS:
        return True
    finally:
        standby.terminate()


def prepares(url: str) -> bool:
    """Whether statements are prepared under names, and kept: yes, unless the address says ``?prepared=no``."""
    given = [value for name, value in _options(url) if name == _PREPARED]
    if given and given[-1] not in ("yes", "no"):
        raise CannotOpen(
            f"prepared={given[-1]}: yes or no; no is for a pooler that mixes up prepared statements"
        )
    return given[-1:] != ["no"]


def _without_our_option(url: str) -> str:
    """asyncpg would send an option that it does not know to the server as a setting."""
    if all(name != _PREPARED for name, _ in _options(url)):
        return url
    before, _, query = url.partition("?")
    kept = [pair for pair in query.split("&") if pair.partition("=")[0] != _PREPARED]
    return f"{before}?{'&'.join(kept)}" if kept else before


def _options(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("?")[2], keep_blank_values=True)


def _several(url: str) -> list[dict[str, Any]]:
    try:
        hosts = hosts_of(url)
    except ValueError:  # asyncpg says what is wrong with it
        return []
    # We find out here which one is the primary: asyncpg would report a standby as an error like any other.
    return [{**host, "target_session_attrs": "any"} for host in hosts] if len(hosts) > 1 else []


def _outdated(found: Connected, known: int) -> bool:
    return found.timeline is not None and found.timeline < known


async def _ask_all(url: str, hosts: list[dict[str, Any]], deadline: float) -> Connected | None:
    """The newest primary that answers; None if only standbys do. If no host answers, raises one of their errors."""
    asking = {asyncio.create_task(_ask(url, host, deadline)) for host in hosts}
    newest: Connected | None = None
    errors: list[RecollectError] = []
    standbys = 0
    limit_s = remaining_s(deadline)
    try:
        while asking:
            done, _ = await asyncio.wait(asking, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                asking.remove(task)
                if isinstance(error := task.exception(), RecollectError):
                    errors.append(error)
                    continue
                found = task.result()
                if found.timeline is None:
                    standbys += 1
                    found.connection.terminate()
                elif newest is None or found.timeline > (newest.timeline or 0):
                    _terminate(newest)
                    newest = found
                else:
                    found.connection.terminate()
            if newest is not None:
                limit_s = min(GRACE_S, remaining_s(deadline))
        await _let_go(asking)
    except BaseException:
        _terminate(newest)
        await _let_go(asking)
        raise
    if newest is None and not standbys:
        raise errors[0] if errors else EngineUnavailable("PostgreSQL: no answer in time")
    return newest


def _terminate(connected: Connected | None) -> None:
    if connected is not None:
        connected.connection.terminate()


async def _let_go(asking: set[asyncio.Task[Connected]]) -> None:
    """Cancels hosts that have not answered, and ends connections that nobody took. A caller may give up even here."""
    for task in asking:
        task.cancel()
        task.add_done_callback(_end_unused)
    await asyncio.gather(*asking, return_exceptions=True)


def _end_unused(task: asyncio.Task[Connected]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().connection.terminate()


async def _ask(url: str, host: dict[str, Any], deadline: float) -> Connected:
    """Connects to one host, waiting for it if it is starting up."""
    for_driver = _without_our_option(url)
    more: dict[str, Any] = {} if prepares(url) else {"statement_cache_size": 0}
    while True:
        try:
            connection = await asyncpg.connect(for_driver, timeout=remaining_s(deadline), **host, **more)
        except asyncpg.CannotConnectNowError as error:
            if remaining_s(deadline) < RETRY_S:
                raise _unreachable(url, host, short_reason(error)) from error
            await asyncio.sleep(RETRY_S)
            continue
        except asyncpg.ProtocolViolationError as error:
            raise _unsupported(error) from error
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise CredentialsRefused("PostgreSQL", short_reason(error)) from error
        except UNREACHABLE as error:
            reason = str(error.strerror) if isinstance(error, socket.gaierror) else short_reason(error)
            raise _unreachable(url, host, reason) from error
        except asyncpg.PostgresError as error:
            raise _no_session(error, url) from error
        except ValueError as error:  # asyncpg's message for a malformed address quotes parts of it
            raise CannotOpen(f"not an address that asyncpg can read ({type(error).__name__})") from None
        try:
            return Connected(connection, await connection.fetchval(_TIMELINE, timeout=remaining_s(deadline)))
        except BaseException as error:
            connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
            raise


def _unreachable(url: str, host: dict[str, Any], reason: str) -> EngineUnavailable:
    """Says where it was looking, which not every error does; without a host in the address, asyncpg looks into the
    environment."""
    at = [host] if host else hosts_of(url)
    place = f"{at[0]['host']}:{at[0]['port']}" if at else "PGHOST"
    return EngineUnavailable(f"PostgreSQL: {place}: {reason}")


def _unsupported(error: asyncpg.ProtocolViolationError) -> CannotOpen:
    """For a pooler that rejects an address with session settings in it."""
    reason = short_reason(error)
    setting = reason.removeprefix("unsupported startup parameter: ")
    if setting == reason:
        return EngineUnavailable(f"PostgreSQL: {reason}")
    return CannotOpen(
        f"PostgreSQL: {reason}; PgBouncer takes no {setting} from an address: leave it out there, and set it for the "
        f"role, ALTER ROLE … SET {setting} = …"
    )


def _no_session(error: asyncpg.PostgresError, url: str) -> CannotOpen:
    """For a server that answered, and made no session. What asyncpg does not know in an address is a setting to it."""
    reason = short_reason(error)
    named = [name for name, _ in _options(url) if name in reason]
    if not named:
        return EngineUnavailable(f"PostgreSQL: {reason}")
    return CannotOpen(
        f"PostgreSQL: {reason}; after the ? of an address come asyncpg's options, {_PREPARED}=no, and settings of "
        f"the server: leave {named[0]} out there, or give it to open_store if it is an option of that"
    )


def remaining_s(deadline: float) -> float:
    """Seconds until a deadline of `time.monotonic`; never 0, which drivers take as "no limit"."""
    return max(deadline - time.monotonic(), 0.001)
