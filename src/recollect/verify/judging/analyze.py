"""The verdict of a history: gather its evidence, then judge it."""

from __future__ import annotations

import gc

from recollect.verify.judging.gathering import collect
from recollect.verify.judging.half_changes import half_changes
from recollect.verify.judging.half_turns import half_turns
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.order_proof import prove
from recollect.verify.judging.verdict import Verdict, judge


def analyze(history: AnyHistory) -> Verdict:
    """Collect the evidence of a history and judge it."""
    # The pass makes millions of short-lived objects and no cycles; looking for cycles costs time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        evidence = collect(history)
        evidence.proven = prove(history, evidence)
        evidence.half_turns = half_turns(history, evidence)
        evidence.half_changes = half_changes(history, evidence)
        return judge(evidence)
    finally:
        if was_enabled:
            gc.enable()
