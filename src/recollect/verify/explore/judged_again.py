"""A violation is reported only after it was judged again: from the saved image, in a process of its own.

`python -m recollect.verify.explore.judged_again FOLDER IMAGE MARKS` is that process. It shares the recording and the
image with the one that judged first, and nothing else, so what both say is a property of the disk. Where they differ,
the mistake is ours, and nothing is concluded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from recollect.verify.disk import materialise, scan
from recollect.verify.disk.exploring import Judgement, marks_of
from recollect.verify.disk.recovery import home
from recollect.verify.disk.states import State
from recollect.verify.explore import exploration
from recollect.verify.explore.exploration import TargetCheck
from recollect.verify.target.module_folders import own_folders

AGAIN_TIMEOUT_S = 120.0


def disagreement(folder: Path, state: State, judgement: Judgement) -> str | None:
    """Why this judgement must not be reported; None when a fresh process agrees."""
    image = Path(tempfile.mkdtemp(dir=folder, prefix="judged-again-")) / "image"
    materialise(state.image, image)
    again = _in_fresh_process(folder, image, state.marks)
    if isinstance(again, Judgement) and again.anomaly == judgement.anomaly:
        shutil.rmtree(image.parent)
        return None
    came_to = again if isinstance(again, str) else again.anomaly or "held"
    return (
        f"{judgement.anomaly} in one process, but judged again in a fresh one from {image}: {came_to}. "
        "This is a bug in recollect: please report it, with that folder"
    )


def _in_fresh_process(folder: Path, image: Path, marks: int) -> Judgement | str:
    command = [sys.executable, "-m", __name__, str(folder), str(image), str(marks)]
    path = os.pathsep.join(own_folders())
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=AGAIN_TIMEOUT_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Judgement)
    except subprocess.TimeoutExpired:
        return f"nothing within {AGAIN_TIMEOUT_S:g} s"
    except msgspec.MsgspecError:
        return f"it ended with {done.stderr.decode(errors='replace').strip()[-300:] or done.returncode}"


def main() -> None:
    folder, image, marks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    answering = os.dup(1)  # the answer goes here; what the target prints must not mix with it
    run = exploration.load(folder)
    told = marks_of(run.records)[:marks]
    check = TargetCheck(run, folder / "target.log", home())
    try:
        judgement = check.check(scan(image).image, told)
    finally:
        check.close()
    os.write(answering, msgspec.json.encode(judgement))


if __name__ == "__main__":
    main()
