"""What we want to stay true of the code itself: sizes, names, words, and a map that has everything on it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.tidy.source import (
    PACKAGE,
    PROJECT,
    outline,
    python_files,
    shown,
    tracked,
    words_in_source,
)

pytestmark = pytest.mark.xdist_group("tidy")
"""One worker parses the files, instead of each."""

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CLASS_LINES_MAX = 450
TOP_MODULES_MAX = 6
"""In `verify/`: everything else lives in a room."""

FORWARDING = {
    "recollect.browser",
    "recollect.recall.targets",
    "recollect.service_fixture",
    "recollect.verify.analyze",
    "recollect.verify.other_python",
}
"""Modules that are nothing but an address that documentation or another release knows."""

STIFF = {
    r"\bsome \d": "about 60, not some 60",
    r"\b(one|a) (order|word|event) a line\b": "one per line",
    r"\bof before\b": "earlier",
    r"\bis no news\b": "say what follows from it",
    r"\bof so many\b": "out of how many?",
    r"\bwhere is in\b": "details are in …",
    r"\ball the same\b": "anyway",
    r"\butili[sz]e": "use",
}
"""Phrases that a native speaker would not write, and what to write instead."""


def test_files_can_be_held_in_the_head() -> None:
    long = [f"{shown(p)}: {n}" for p in _ours() if (n := len(p.read_text().splitlines())) > FILE_LINES_MAX]
    assert not long


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{shown(path)}:{function.line} {function.name}: {function.lines} lines"
        for path in _ours()
        for function in outline(path).functions
        if function.lines > FUNCTION_LINES_MAX
    ]
    assert not long


def test_classes_stay_small() -> None:
    long = [
        f"{shown(path)}:{found.line} {found.name}: {found.lines} lines"
        for path in _ours()
        for found in outline(path).classes
        if found.lines > CLASS_LINES_MAX
    ]
    assert not long


SAME_ROLE = {"Address", "Connection", "RecollectHistory"}
"""Each wire's own of one thing, and each framework's."""


def test_one_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in python_files("src"):
        for found in outline(path).top_classes:
            places[found.name.lstrip("_")].append(f"{shown(path)}:{found.line}")
    several = {name: where for name, where in places.items() if len(where) > 1}
    assert not {name: where for name, where in several.items() if name not in SAME_ROLE}
    assert set(several) == SAME_ROLE, "a name that is no longer shared leaves the list"


def test_no_name_is_dead() -> None:
    """A function, class or constant that nothing else in the package mentions; tests alone are no reason to live."""
    count = words_in_source()
    dead = [
        f"{shown(path)}:{line} {name}"
        for path in python_files("src")
        for name, line in outline(path).names
        if count[name] == 1 and not _is_called_by_others(name)
    ]
    assert not dead


def test_the_rooms_of_the_kit_hold_nearly_everything() -> None:
    top = sorted(p.stem for p in (PACKAGE / "verify").glob("*.py") if p.stem != "__init__")
    assert len(top) <= TOP_MODULES_MAX, top


def test_forwarding_modules_only_forward() -> None:
    for name in FORWARDING:
        path = PROJECT / "src" / Path(*name.split(".")).with_suffix(".py")
        found = outline(path)
        assert not found.classes, name
        assert not found.functions, name
        assert "Kept for its address" in found.docstring, name


def test_every_module_is_on_the_map() -> None:
    """ARCHITECTURE.md names each module in the row of its room; checkers are named after their anomaly."""
    rooms = _rooms()
    missing = []
    for path in python_files("src"):
        folder = path.relative_to(PACKAGE).parent.as_posix()
        room = folder if folder != "." else ""
        while room not in rooms:
            room = room.rpartition("/")[0]
        if path.stem not in rooms[room] and path.parent.name != "checkers" and path.stem != "__init__":
            missing.append(f"{shown(path)} in the row of {room or 'the top'}")
    assert not missing


def test_nothing_is_on_the_map_that_has_gone() -> None:
    gone = [
        f"{name} in the row of {room or 'the top'}"
        for room, names in _rooms().items()
        for name in names
        if not any((PACKAGE / room).rglob(f"{name}.py")) and not any((PACKAGE / room).rglob(name))
    ]
    assert not gone


def _rooms() -> dict[str, set[str]]:
    """What the map names, by the room's folder below the package; the thin modules count to the top."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    library, kit = text.split("## The library")[1].split("## The walk of")[0].split("## The kit")
    rooms: dict[str, set[str]] = {"": set()}
    for folder, part in (("", library), ("verify", kit)):
        for first, rest in re.findall(r"^\| `?([a-z_/]+?)/?`? \| (.*)", part, re.MULTILINE):
            if first not in {"where", "room"}:
                room = folder if first == "top" else f"{folder}/{first}".lstrip("/")
                rooms[room] = _names(rest.rsplit("|", 2)[0] if folder else rest)
    rooms[""] |= _names(kit.rpartition("\n| ")[2].partition("\n")[2])
    return rooms


def _names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9]+)/?`", text))


def test_every_module_says_what_it_is() -> None:
    silent = [shown(p) for p in python_files("src") if not outline(p).docstring]
    assert not silent


def test_the_words_are_natural() -> None:
    stiff = [
        f"{shown(path)}:{number}: {found.group(0)!r}, better: {better}"
        for path in tracked()
        if path.suffix in {".py", ".md", ".html", ".j2", ".c", ".h"}
        and not path.is_relative_to(PROJECT / "tests" / "tidy")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for pattern, better in STIFF.items()
        if (found := re.search(pattern, line))
    ]
    assert not stiff


def test_sqlite_gets_a_name_or_a_place_but_no_number() -> None:
    """`?1` with a tuple is deprecated in Python 3.12.0 to 3.12.3; `:name` with a mapping never is."""
    numbered = [
        f"{shown(path)}:{number}"
        for path in python_files("src", "bench")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"[ (]\?(\d|\{)", line)
    ]
    assert not numbered


def _ours() -> list[Path]:
    return python_files("src", "tests", "bench", "tools", "examples")


def _is_called_by_others(name: str) -> bool:
    """Names that Python, pytest, Alembic or a base class calls."""
    is_special = name.startswith("__") and name.endswith("__")
    return is_special or name.startswith(("pytest_", "do_", "visit_")) or name in CALLED_BY_OTHERS


CALLED_BY_OTHERS = {
    # Alembic
    "down_revision",
    "downgrade",
    "revision",
    "upgrade",
    # asyncio
    "_make_socket_transport",
    "can_write_eof",
    "buffer_updated",
    "remove_done_callback",
    "data_received",
    "get_buffer",
    "get_protocol",
    "is_closing",
    "is_reading",
    "resume_reading",
    "set_write_buffer_limits",
    "sock_connect",
    "writelines",
    # LangChain's embeddings
    "embed_documents",
    # threading.Condition
    "_acquire_restore",
    "_is_owned",
    "_release_save",
    # targets by their address: `recollect verify --previous recollect.verify.builtin:redis_next`
    "chroma_next",
    "postgres_next",
    "postgres_week",
    "redis_next",
    "redis_week",
    "sqlite_next",
    "sqlite_week",
    # what the tests of the warden and of the disk model look at
    "finish_syncs",
    "syncs_in_flight",
    "warden_pid",
    # Rich
    "on_broken_pipe",
}
