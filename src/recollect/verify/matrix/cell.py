"""`python -m recollect.verify.matrix.cell`: a process that runs cells, one order per line of standard input."""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO

import msgspec

from recollect import private
from recollect.secret import Scrubber, from_json, to_pipe
from recollect.verify.engines import EngineError, NotInstalled
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix import judged_again
from recollect.verify.matrix.cell_process import Done, LookAtTarget, Order, Step, TargetSeen, Word
from recollect.verify.matrix.results import Result, Trouble
from recollect.verify.matrix.target_probe import abilities_of
from recollect.verify.running.older_data import BadData
from recollect.verify.running.older_run import OlderDataRun
from recollect.verify.running.run import Run
from recollect.verify.target.module_folders import import_from
from recollect.verify.target.workers import TargetBroken

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def run_cell(order: Order, say: IO[bytes]) -> Result:
    """One cell, from start to verdict. A bug of ours spoils this cell, not the whole matrix."""
    started = time.monotonic()
    folder = Path(order.folder)
    import_from(order.scenario.path)
    kind = Run if order.scenario.data is None else OlderDataRun
    run = kind(order.scenario, folder, progress=lambda step: _say(say, Step(step)), preload=order.preload)
    trouble: Trouble | None = None
    try:
        private.artifact_folder(folder)
        verdict = run.execute()
        if order.judge_again:
            verdict = judged_again.told(verdict, run.history)
    except BadData as bad:
        verdict, trouble = Verdict(status="unknown", reason=str(bad)), "unopened"
    except Exception as error:
        verdict, trouble = _not_run(error, run, folder)
    if verdict.reason is not None:
        verdict = msgspec.structs.replace(verdict, reason=run.scrubber(verdict.reason))
    return Result(
        scenario=order.scenario,
        verdict=verdict,
        engine_version=run.engine_version,
        provider=run.provider,
        release=run.release,
        traits=run.traits,
        real_policy=run.real_policy,
        elapsed_s=time.monotonic() - started,
        operations=run.operations,
        notes=tuple(map(run.scrubber, run.notes.in_short)),
        trouble=trouble,
    )


def _not_run(error: Exception, run: Run, folder: Path) -> tuple[Verdict, Trouble | None]:
    """For a cell that an error of ours ended, or a disk on which nothing can be written."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        reason = (
            f"what happened could not be written: {error}; make room, or choose another folder with --out"
        )
        return Verdict(status="unknown", reason=reason), None
    trace = folder / "kit-error.txt"
    private.write_artifact(trace, run.scrubber(traceback.format_exc()))
    reason = (
        f"an error in recollect itself; please report it: {type(error).__name__}: {error}; details in {trace}"
    )
    return Verdict(status="unknown", reason=reason), "internal"


def look(order: LookAtTarget) -> TargetSeen:
    """What the target can do."""
    import_from(order.request.path)
    scrubber = Scrubber([order.request.url])
    try:
        return TargetSeen(tuple(sorted(abilities_of(order.request, order.target))))
    except NotInstalled as missing:
        return TargetSeen(refusal=scrubber(str(missing)), no_engine=True)
    except (TargetBroken, EngineError) as refusal:
        return TargetSeen(refusal=scrubber(str(refusal)))
    except Exception as error:
        reason = f"an error in recollect itself; please report it: {type(error).__name__}: {error}"
        return TargetSeen(refusal=scrubber(reason), internal=True)


def _say(stream: IO[bytes], word: Word) -> None:
    stream.write(msgspec.json.encode(word, enc_hook=to_pipe) + b"\n")
    stream.flush()


def _end_with_the_owner(at_work: threading.Event) -> None:
    """When the process that gives the orders is gone, nobody waits for the running cell: end, and let the warden
    clean up."""
    poller = select.poll()
    poller.register(0, 0)  # wake up only when the other end is closed
    poller.poll()
    if at_work.is_set():
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    gc.freeze()  # what was imported stays
    # Standard output carries results to the matrix; anything else that prints goes to standard error.
    say = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    at_work = threading.Event()
    threading.Thread(target=_end_with_the_owner, args=(at_work,), daemon=True).start()
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order | LookAtTarget, dec_hook=from_json)
        at_work.set()
        _say(say, look(order) if isinstance(order, LookAtTarget) else Done(run_cell(order, say)))
        at_work.clear()


if __name__ == "__main__":
    main()
