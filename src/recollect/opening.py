"""`open_store(url)`: the scheme chooses the store, whose module (and driver) is imported only then."""

import importlib
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, cast

from recollect import private
from recollect.errors import CannotOpen, MissingExtra, Refused, shown
from recollect.secret import SecretUrl, check_address, scheme_of
from recollect.store import Durability, Options, Refresh, Store

TTL_MAX = timedelta(days=365_000)
"""A thousand years: what ends later than an engine's calendar would fail with every append."""


class _Place(NamedTuple):
    module: str
    name: str
    extra: str | None


_SQLITE = _Place("recollect.stores.sqlite.store", "SqliteStore", None)
_REDIS = _Place("recollect.stores.redis.store", "RedisStore", "redis")
_POSTGRES = _Place("recollect.stores.postgres.store", "PostgresStore", "postgres")

STORES: dict[str, _Place] = {
    "sqlite": _SQLITE,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "valkey": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}


class Opening:
    """What `open_store` returns: ``await`` it, or use it as ``async with``, which also closes the store."""

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._options = options
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()

    async def _open(self) -> Store:
        return cast(Store, await _store_class(self._url).open(self._url, self._options))


def open_store(
    url: str,
    *,
    durability: Durability | str | None = None,
    replicas: int = 0,
    witness: str | Path | None = None,
    ttl: timedelta | None = None,
    refresh: Refresh = "append",
    turns_kept: int = 1000,
    timeout_s: float = 10.0,
    pool_size: int = 8,
    read_url: str | None = None,
    migrate: bool = True,
    file_mode: int | None = private.FILE_MODE,
) -> Opening:
    """Opens the store at an address: ``sqlite:///memory.db``, ``redis://host:6379/0``, ``postgresql://host/db``.

    `durability` (``"buffered"``, ``"written"``, ``"fsynced"``) and `replicas` are reached, or the store refuses to
    open and names the setting to change. Without them it takes what the engine gives, and logs once what could be
    lost. The other options are described in `recollect.store.Options`.
    """
    return Opening(
        url,
        checked_options(
            durability=durability,
            replicas=replicas,
            witness=witness,
            ttl=ttl,
            refresh=refresh,
            turns_kept=turns_kept,
            timeout_s=timeout_s,
            pool_size=pool_size,
            read_url=read_url,
            migrate=migrate,
            file_mode=file_mode,
        ),
    )


def checked_options(
    *,
    durability: Durability | str | None,
    replicas: int,
    witness: str | Path | None,
    ttl: timedelta | None,
    refresh: Refresh,
    turns_kept: int,
    timeout_s: float,
    pool_size: int,
    read_url: str | None,
    migrate: bool,
    file_mode: int | None,
) -> Options:
    if refresh not in ("append", "read", "never"):
        raise Refused(f"refresh: 'append', 'read' or 'never', not {refresh!r}")
    if ttl is not None and not timedelta(milliseconds=1) <= ttl <= TTL_MAX:
        raise Refused(
            f"ttl: a millisecond to {TTL_MAX.days:,} days, or None to keep memory for ever; not {ttl}"
        )
    for name, value, least, most in (
        ("replicas", replicas, 0, 1_000),
        ("turns_kept", turns_kept, 1, 1_000_000_000),
        ("timeout_s", timeout_s, 0.001, 1_000_000),
        ("pool_size", pool_size, 1, 100_000),
    ):
        if not least <= value <= most:  # written so that NaN is refused too
            wanted = f"at least {least}" if value < least else f"at most {most}"
            raise Refused(f"{name}: {wanted}, not {shown(value)}")
    return Options(
        durability=_durability(durability),
        replicas=replicas,
        witness=None if witness is None else Path(witness),
        ttl=ttl,
        refresh=refresh,
        turns_kept=turns_kept,
        timeout_s=timeout_s,
        pool_size=pool_size,
        read_url=None if read_url is None else SecretUrl(read_url),
        migrate=migrate,
        file_mode=private.checked(file_mode),
    )


def _durability(value: Durability | str | None) -> Durability | None:
    try:
        return None if value is None else Durability(value)
    except ValueError:
        known = ", ".join(repr(durability.value) for durability in Durability)
        raise Refused(f"durability: one of {known}, not {value!r}") from None


def _store_class(url: str) -> Any:
    scheme = scheme_of(url)
    check_address(url)
    place = STORES.get(scheme)
    if place is None:
        raise CannotOpen(
            f"no store for {scheme or 'an address without a scheme'!r}; use one of {', '.join(STORES)}, "
            "such as sqlite:///memory.db"
        )
    try:
        return getattr(importlib.import_module(place.module), place.name)
    except ImportError as error:
        if place.extra is None or (error.name or "").startswith("recollect"):
            raise
        raise MissingExtra(
            f"{scheme}:// needs a driver ({error.name}): pip install 'recollect[{place.extra}]'"
        ) from error
