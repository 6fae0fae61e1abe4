"""Bits that flip in files at rest, while the engine is down.

The places are chosen by what is there: the texts of test messages carry a mark, so a file's records are known without
knowing its format. In the variant ``records`` one bit of a letter of a text flips, which leaves every length and every
encoding as it was: only a checksum tells. In ``metadata`` bits flip beside the texts, on the same pages: lengths,
headers, keys, pointers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from recollect.verify.running.faults.fault import Fault, Witnessed, files_obstacle, ours_only
from recollect.verify.running.faults.storage import data_folder
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.marked_text import marks_in

RECORDS, METADATA = "records", "metadata"
RECORD_BITS = 8
METADATA_BITS = 6
"""A place beside a record may be one that nothing depends on, so a few are tried."""
PAGE_BYTES = 4096
FILE_BYTES_MAX = 256 << 20
_LETTER = re.compile(rb"[A-Za-z]")
_NOT_READ_AGAIN = frozenset({"pg_wal"})
"""Folders that an engine does not read after an orderly stop."""


class BitPlace(NamedTuple):
    file: Path
    offset: int
    bit: int


def files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = set(path.relative_to(folder).parts)
        if inside & _NOT_READ_AGAIN or path.is_symlink() or not path.is_file():
            continue
        if 0 < path.stat().st_size <= FILE_BYTES_MAX:
            yield path


def places(folder: Path, variant: str, rng: random.Random) -> list[BitPlace]:
    """Which bits to flip. Where no text is found (a compressed snapshot), any of the largest file."""
    found: list[BitPlace] = []
    for file in files_in(folder):
        raw = file.read_bytes()
        texts = list(marks_in(raw))
        if variant == METADATA:
            found += [BitPlace(file, offset, rng.randrange(8)) for offset in _beside(raw, texts, rng)]
        else:
            for _, start, end in texts:
                letters = [start + letter.start() for letter in _LETTER.finditer(raw[start:end])]
                # The lowest bit of a letter makes another letter or a sign, never a quote or a line's end.
                found += [BitPlace(file, rng.choice(letters), 0)] if letters else []
    if found:
        return rng.sample(found, min(len(found), METADATA_BITS if variant == METADATA else RECORD_BITS))
    largest = max(files_in(folder), key=lambda file: file.stat().st_size, default=None)
    if largest is None:
        return []
    size = largest.stat().st_size
    return [BitPlace(largest, rng.randrange(size), rng.randrange(8)) for _ in range(METADATA_BITS)]


def _beside(raw: bytes, texts: list[tuple[int, int, int]], rng: random.Random) -> Iterator[int]:
    """Bytes of pages that hold records, outside their texts: a few for each page."""
    taken = {offset for begin, _, end in texts for offset in range(begin, end)}
    for page in sorted({begin // PAGE_BYTES for begin, _, _ in texts}):
        free = [
            offset
            for offset in range(page * PAGE_BYTES, min(len(raw), (page + 1) * PAGE_BYTES))
            if offset not in taken and raw[offset]
        ]
        yield from rng.sample(free, min(len(free), METADATA_BITS))


def flip(place: BitPlace) -> None:
    with place.file.open("r+b") as file:
        file.seek(place.offset)
        byte = file.read(1)[0]
        file.seek(place.offset)
        file.write(bytes([byte ^ (1 << place.bit)]))


class BitRot(Witnessed):
    def strike(self) -> None:
        run, variant = self.run, self.run.scenario.variant
        with run.striking("bit-rot", variant):
            run.stop_engine()
            chosen = places(data_folder(run), variant, run.rng)
            if not chosen:
                run.give_up("the engine left no file in which a bit could flip")
            for place in chosen:
                flip(place)
            files = sorted({place.file.name for place in chosen})
            run.remark(f"{len(chosen)} bits flipped in {', '.join(files)}")
            run.start_engine()
            if not run.engine.embedded:
                run.restart_clients()


def _obstacle(scenario: Scenario) -> str | None:
    if (reason := ours_only(scenario)) is not None:
        return reason
    if (scenario.engine_kind, scenario.policy) == ("redis", "none"):
        return "without persistence Redis has nothing at rest"
    return files_obstacle(scenario)


ROT_FAULTS = (
    Fault(
        "bit-rot",
        BitRot,
        verifies="when bits of the files flip while the engine is down, in records or in what is around them, nobody"
        " gets other content than was written without an error",
        does_not_verify="that the data can be repaired; bits that flip in memory or on the way; every place where a bit"
        " can flip",
        obstacle=_obstacle,
        variants=(RECORDS, METADATA),
    ),
)
