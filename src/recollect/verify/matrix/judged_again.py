"""A violation is reported only after a fresh process has judged its saved history again.

`python -m recollect.verify.matrix.judged_again HISTORY` is that process. A verdict is a function of the history; if
two processes disagree, the mistake is ours and nothing is concluded.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import msgspec

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.verdict import Verdict

AGAIN_TIMEOUT_S = 60.0


def told(verdict: Verdict, history: Path) -> Verdict:
    """The verdict if a fresh process agrees, else `unknown`."""
    if verdict.status != "violated":
        return verdict
    again = _in_fresh_process(history)
    if isinstance(again, Verdict) and _conclusion(again) == _conclusion(verdict):
        return verdict
    came_to = again if isinstance(again, str) else _conclusion(again)
    reason = (
        f"{_conclusion(verdict)} in one process, but judged again in a fresh one from {history}: {came_to}. "
        "This is a bug in recollect: please report it, with that file"
    )
    return msgspec.structs.replace(verdict, status="unknown", reason=reason)


def _conclusion(verdict: Verdict) -> str:
    names = ", ".join(f"{anomaly.count} {anomaly.name}" for anomaly in verdict.anomalies)
    return f"{verdict.status} ({names})" if names else verdict.status


def _in_fresh_process(history: Path) -> Verdict | str:
    command = [sys.executable, "-m", __name__, str(history)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=AGAIN_TIMEOUT_S, check=False)
        return msgspec.json.decode(done.stdout, type=Verdict)
    except subprocess.TimeoutExpired:
        return f"no answer within {AGAIN_TIMEOUT_S:g} s"
    except msgspec.MsgspecError:
        return f"it ended with {done.stderr.decode(errors='replace').strip()[-300:] or done.returncode}"


if __name__ == "__main__":
    gc.freeze()  # what was imported stays
    sys.stdout.buffer.write(msgspec.json.encode(analyze(History(Path(sys.argv[1])))))
