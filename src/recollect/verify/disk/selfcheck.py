"""Did the recorder see everything? Asked after every recorded run, because a blind recorder finds no losses.

After kill -9 the folder holds what the page cache held, which the model can predict from the log alone. Any
difference means that something changed the folder behind the recorder's back (raw system calls, io_uring, a
process without the shim), and the run's verdict is `unknown`.

Two differences are nobody's fault. Files written by streams or mappings change between two snapshots; their
last changes were never synced, and `check_sight` tells the model about them. And a process may die between
a call and its record: such calls are listed in the log's header.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recollect.verify.disk.image import Base, Content, ImageEntry, scan
from recollect.verify.disk.model import Model
from recollect.verify.disk.recorder import Recorder

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Blindness:
    """Changes that happened and were not recorded. `differences` are in plain words."""

    differences: tuple[str, ...]

    def __str__(self) -> str:
        shown = "; ".join(self.differences[:_SHOWN])
        more = f"; and {len(self.differences) - _SHOWN} more" if len(self.differences) > _SHOWN else ""
        return f"the disk recorder was blind, so nothing can be concluded about power loss: {shown}{more}"


def check_sight(
    recorder: Recorder, model: Model, folder: Path | None = None, *, found: Base | None = None
) -> Blindness | None:
    """Compares the folder, or what was found in it, with the model's lose-nothing image; None if the recorder saw
    everything.

    The engine must be dead and the model must have replayed the whole log. The model takes in unsynced
    changes that the recorder could not see, so it is exact afterwards.
    """
    if recorder.io_uring:
        return Blindness(("the engine writes through io_uring",))
    if not recorder.pids():
        return Blindness(("no process of the engine has loaded the recorder",))
    found = found or scan(folder or recorder.root)
    flights = recorder.in_flight()
    excused = recorder.unseen() | {flight.ino for flight in flights if flight.ino}
    for path, (expected, there) in model.cached().difference(found.image).items():
        if isinstance(there, Content) and isinstance(expected, Content) and found.inos[path] in excused:
            model.absorb(found.inos[path], there)
    left = model.cached().difference(found.image)
    names_in_flight = sum(not flight.ino for flight in flights)
    missing = [path for path, (expected, there) in left.items() if expected is None or there is None]
    if names_in_flight and len(missing) == len(left) <= 2 * names_in_flight:
        return None
    return Blindness(tuple(_describe(path, *pair) for path, pair in left.items())) if left else None


def _describe(path: str, expected: ImageEntry | None, there: ImageEntry | None) -> str:
    if expected is None:
        return f"{path} is there and was never recorded"
    if there is None:
        return f"{path} was recorded and is not there"
    if isinstance(expected, Content) and isinstance(there, Content):
        if expected.size != there.size:
            return f"{path} has {there.size} bytes, {expected.size} were recorded"
        differing = min(
            index
            for index in expected.pages.keys() | there.pages.keys()
            if expected.page(index) != there.page(index)
        )
        return f"{path} differs from what was recorded, first in the page at {differing * 4096}"
    return f"{path} is {there!r}, but {expected!r} was recorded"
