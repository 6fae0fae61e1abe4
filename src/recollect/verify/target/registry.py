"""Released stores by name: `recollect verify agents.redis`.

Each is a row: where its factory is, which engine it runs on, what pip has to install for it, and what it does not
claim. All rows, ours too, come from the entry-point group ``recollect.targets``: an entry point names a dictionary of
targets. Reading the rows imports none of the libraries that they are about.
"""

import logging
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Annotated

import msgspec

from recollect.guarantees import MADE_OF
from recollect.verify.target.own_modules import MARK

log = logging.getLogger("recollect")

GROUP = "recollect.targets"

BUILT_IN: dict[str, str] = {
    "sqlite": "recollect.verify.builtin:sqlite",
    "redis": "recollect.verify.builtin:redis",
    "postgres": "recollect.verify.builtin:postgres",
    "chroma": "recollect.verify.builtin:chroma",
    "redis-cluster": "recollect.verify.builtin:redis",
    "redis-sentinel": "recollect.verify.builtin:redis",
    "postgres-ha": "recollect.verify.builtin:postgres",
    "patroni": "recollect.verify.builtin:postgres",
}
"""Our own stores, by the name of their engine."""

USUAL = ("sqlite", "redis", "postgres", "chroma")
"""Those that are verified when none is named; the others have engines of several servers."""


class NamedTarget(msgspec.Struct, frozen=True):
    """A store that has a name."""

    factory: str
    """``package.module:factory``, as on the command line."""
    engine: str
    """With a version only if it needs that one: ``postgres@18``."""
    requires: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """For pip, with the versions it was tried with; the first is the store's own distribution."""
    traits: tuple[str, ...] = ()
    """What the store, used as its framework uses it, does not claim; see `TRAITS` of `target`."""
    prepare: str = ""
    """``package.module:prepare``; empty: the `prepare` beside the factory, if there is one."""
    sessions: str = ""
    """``package.module:sessions``, which lists the sessions of a database for `recollect audit`; empty: the `sessions`
    beside the factory, if there is one."""
    reading: str = ""
    """``package.module:factory`` of a store that `recollect audit` reads with; empty: the factory. For stores that, as
    the kit uses them, read only what it has written itself."""
    imports: tuple[str, ...] = ()
    """What the factory imports when it is called: imported once, before the workers are forked, and not in each of
    them. Nothing that starts a thread on import, which a fork would not have."""

    unrecorded: str = ""
    """Why the disk recorder does not see all that it does to its files; faults that need a recording are skipped with
    this reason. Empty: it sees everything."""

    @property
    def kind(self) -> str:
        """The engine without a version."""
        return self.engine.partition("@")[0]

    @property
    def distribution(self) -> str:
        return _name_of(self.requires[0])

    @property
    def installed(self) -> str | None:
        """The installed version of its distribution; None if there is none."""
        return _version_of(self.requires[0])

    @property
    def lacking(self) -> bool:
        """Whether anything that it requires is not installed; what an extra brings is not looked at."""
        return any(_version_of(one) is None for one in self.requires)

    @property
    def released(self) -> str:
        """Its distribution and the installed version, as reports show it; empty if it is not installed."""
        return f"{self.distribution} {self.installed}" if self.installed else ""

    @property
    def pip(self) -> str:
        return f"pip install {' '.join(repr(one) for one in self.requires)}"


def _name_of(requirement: str) -> str:
    for end in "[<>=!~; ":
        requirement = requirement.partition(end)[0]
    return requirement


def _version_of(requirement: str) -> str | None:
    try:
        return version(_name_of(requirement))
    except PackageNotFoundError:
        return None


@cache
def named_targets() -> dict[str, NamedTarget]:
    """All names, sorted. What cannot be used is left out, with a warning: somebody's broken plugin must not break every
    command. Of two rows with one name, ours counts, or else that of the first entry point."""
    found: dict[str, NamedTarget] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: (not _is_ours(one), one.name)):
        for name, row in _rows_of(entry).items():
            wrong = "the name is taken" if name in found or name in BUILT_IN else _wrong_in(name, row)
            if wrong:
                log.warning("target %r of %s is left out: %s", name, entry.value, wrong)
            else:
                found[name] = row
    return dict(sorted(found.items()))


def _is_ours(entry: EntryPoint) -> bool:
    return entry.value.startswith("recollect.")


def _rows_of(entry: EntryPoint) -> "Mapping[str, NamedTarget]":
    """As they are there: not checked yet."""
    try:
        rows = entry.load()
        if not isinstance(rows, Mapping):
            raise TypeError(f"a dictionary of names and NamedTargets is expected, not {type(rows).__name__}")
    except Exception as error:
        log.warning("the targets of %s cannot be loaded: %s: %s", entry.value, type(error).__name__, error)
        return {}
    return rows


def _wrong_in(name: object, row: object) -> str:
    """What keeps it from being used; empty if nothing does."""
    if not isinstance(name, str) or not name or ":" in name:
        return "a name is text without a colon"
    if not isinstance(row, NamedTarget):
        return f"a NamedTarget is expected, not {type(row).__name__}"
    try:
        msgspec.convert(msgspec.structs.asdict(row), NamedTarget)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def address_of(spec: str) -> str:
    """The ``package.module:factory`` of a name; anything else is returned as it is."""
    row = row_of(spec)
    return spec if row is None else row.factory


def row_of(spec: str) -> NamedTarget | None:
    """The row of a name; None for anything else."""
    return None if ":" in spec or spec in BUILT_IN else named_targets().get(spec)


def modules_of(spec: str) -> tuple[str, ...]:
    """What may be imported once, before its workers start: our own module, or the libraries of somebody else's, which
    has a `MARK` behind its name. None for a built-in."""
    module, colon, _ = address_of(spec).partition(":")
    if not colon:
        return ()
    return (module if module.startswith("recollect.") else module + MARK,)


_DRIVERS: dict[str, tuple[str, ...]] = {
    "sqlite": ("recollect.stores.sqlite.store",),
    "redis": ("recollect.stores.redis.store",),
    "valkey": ("recollect.stores.redis.store",),
    "postgres": ("recollect.stores.postgres.store",),
}
_MIGRATING = ("alembic.command", "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.postgresql.asyncpg")
"""What our own store imports to create its tables: half a second, which no other store has to wait for."""


def imports_of(spec: str, engine: str) -> tuple[str, ...]:
    """What is imported once, in the process that its workers are forked from, instead of in every worker."""
    name = engine.partition("@")[0]
    kind = MADE_OF.get(name, name).partition("-")[0]
    own = modules_of(spec)
    ours = not any(name.endswith(MARK) for name in own)
    row = row_of(spec)
    return (
        *own,
        *(row.imports if row else ()),
        *_DRIVERS.get(kind, ()),
        *(_MIGRATING if ours and kind == "postgres" else ()),
    )
