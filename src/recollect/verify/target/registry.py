"""Released stores by their names: `recollect verify agents.redis`.

Each is a row: where its factory is, on which engine it runs, and what pip needs to install for it. The rows come from
the entry-point group ``recollect.targets``, ours like anybody's: an entry point leads to a dictionary of names. Reading
the rows imports none of the libraries that they are about.
"""

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version

import msgspec

log = logging.getLogger("recollect")

GROUP = "recollect.targets"


class NamedTarget(msgspec.Struct, frozen=True):
    """A store that has a name."""

    factory: str
    """``package.module:factory``, as on the command line."""
    engine: str
    requires: tuple[str, ...]
    """For pip, with the versions that it was tried with; the first is the store's own distribution."""

    @property
    def distribution(self) -> str:
        name = self.requires[0]
        for end in "[<>=!~; ":
            name = name.partition(end)[0]
        return name

    @property
    def installed(self) -> str | None:
        """The version of its distribution that is here; None if there is none."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    @property
    def pip(self) -> str:
        return f"pip install {' '.join(repr(one) for one in self.requires)}"


@cache
def named_targets() -> dict[str, NamedTarget]:
    """All names, sorted; those of an entry point that cannot be loaded are left out, with a warning."""
    found: dict[str, NamedTarget] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            rows = entry.load()
        except Exception as error:  # somebody's plugin: what is broken in it must not break every command
            log.warning(
                "the targets of %s cannot be loaded: %s: %s", entry.value, type(error).__name__, error
            )
            continue
        found.update({name: row for name, row in rows.items() if isinstance(row, NamedTarget)})
    return dict(sorted(found.items()))


def address_of(spec: str) -> str:
    """The ``package.module:factory`` of a name; everything else as it is."""
    if ":" in spec or (row := named_targets().get(spec)) is None:
        return spec
    return row.factory


def modules_of(spec: str) -> tuple[str, ...]:
    """What may be imported once, before its workers are started; none for a built-in."""
    module, colon, _ = address_of(spec).partition(":")
    return (module,) if colon else ()
