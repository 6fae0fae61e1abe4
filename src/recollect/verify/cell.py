"""`python -m recollect.verify.cell`: runs cells for the matrix, one order a line on standard input."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from recollect.verify.matrix import Done, Order, Step, Word
from recollect.verify.results import Result
from recollect.verify.runner import Run
from recollect.verify.verdict import Verdict


def run_cell(order: Order, say: IO[bytes]) -> Result:
    """One cell, from start to verdict; a bug of ours is an `unknown` verdict, not a lost matrix."""
    started = time.monotonic()
    folder = Path(order.folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(order.scenario, folder, progress=lambda step: _say(say, Step(step)))
    try:
        verdict = run.execute()
    except Exception as error:
        verdict = Verdict(status="unknown", reason=f"the kit itself failed: {type(error).__name__}: {error}")
    return Result(
        scenario=order.scenario,
        verdict=verdict,
        engine_version=run.engine_version,
        provider=run.provider,
        elapsed_s=time.monotonic() - started,
        operations=run.operations,
        notes=tuple(run.notes.hangs[:1] + run.notes.deaths[:1] + run.notes.refusals[:1]),
    )


def _say(stream: IO[bytes], word: Word) -> None:
    stream.write(msgspec.json.encode(word) + b"\n")
    stream.flush()


def main() -> None:
    # Standard output is the matrix's; whatever else prints goes to standard error.
    say = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        _say(say, Done(run_cell(order, say)))


if __name__ == "__main__":
    main()
