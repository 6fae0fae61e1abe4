"""Which shelf an address means. Its driver is imported when it is asked for."""

from importlib import import_module
from typing import Any

from recollect.errors import CannotOpen, MissingExtra
from recollect.secret import check_address, scheme_of

_HERE = "recollect.adapters.langgraph"
_SQLITE = (f"{_HERE}.shelf_sqlite", "SqliteShelf", None)
_REDIS = (f"{_HERE}.shelf_redis", "RedisShelf", "redis")
_POSTGRES = (f"{_HERE}.shelf_postgres", "PostgresShelf", "postgres")
SHELVES: dict[str, tuple[str, str, str | None]] = {
    "sqlite": _SQLITE,
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "valkey": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}


def shelf_class(url: str) -> Any:
    scheme = scheme_of(url)
    check_address(url)
    if scheme not in SHELVES:
        raise CannotOpen(
            f"no checkpoints for {scheme!r}; use one of {', '.join(SHELVES)}, such as sqlite:///memory.db"
        )
    module, name, extra = SHELVES[scheme]
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        if extra is None or (error.name or "").startswith("recollect"):
            raise
        raise MissingExtra(
            f"{scheme}:// needs a driver ({error.name}): pip install 'recollect[{extra}]'"
        ) from error
