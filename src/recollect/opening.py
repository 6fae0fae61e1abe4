"""`open_store(url)`: the scheme chooses the store, whose module (and driver) is imported only then."""

import importlib
from collections.abc import Generator
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Unpack, cast

from recollect import telemetry
from recollect.errors import CannotOpen, MissingExtra
from recollect.secret import check_address, scheme_of
from recollect.store import OpenOptions, Options, Store


class _StoreClass(NamedTuple):
    module: str
    name: str
    extra: str | None


_SQLITE = _StoreClass("recollect.stores.sqlite.store", "SqliteStore", None)
_REDIS = _StoreClass("recollect.stores.redis.store", "RedisStore", "redis")
_POSTGRES = _StoreClass("recollect.stores.postgres.store", "PostgresStore", "postgres")

STORES: dict[str, _StoreClass] = {
    "sqlite": _SQLITE,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "valkey": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "valkey+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "valkey+sentinel": _REDIS,
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

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"open_store() was not awaited, so it has no {name} yet: write `store = await open_store(url)`, or "
            "`async with open_store(url) as store`",
            name=name,
            obj=self,
        )

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "open_store() needs `async with`; without async, use `with recollect.sync.open_store(url) as store`"
        )

    def __exit__(self, *_: object) -> None:
        """`with` looks this up before it calls `__enter__`."""

    async def _open(self) -> Store:
        opening = _store_class(self._url).open(self._url, self._options)
        return cast(Store, await telemetry.opened(self._url, opening, telemetry.STORE))


def open_store(url: str, **options: Unpack[OpenOptions]) -> Opening:
    """Opens the store at an address: ``sqlite:///memory.db``, ``redis://host:6379/0``, ``postgresql://host/db``.

    If the engine cannot give the `durability` (``"buffered"``, ``"written"``, ``"fsynced"``) and `replicas` asked for,
    the store refuses to open and names the setting to change. Without them it takes what the engine gives, and logs
    once what could be lost. The other options are `witness`, `ttl`, `refresh`, `turns_kept`, `timeout_s`, `pool_size`,
    `file_mode`, `read_url` and `migrate`, described in `recollect.store.Options`.
    """
    return Opening(url, Options.checked(options))


def _store_class(url: str) -> Any:
    scheme = scheme_of(url)
    check_address(url)
    place = STORES.get(scheme)
    if place is None:
        raise CannotOpen(
            f"{f'no store for {scheme!r}' if scheme else 'the address has no scheme'}; use one of {', '.join(STORES)}, "
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
