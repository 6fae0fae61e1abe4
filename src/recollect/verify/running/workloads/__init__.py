"""Workloads: seeded generators of operations.

A workload is a generator function: it yields an intent, and is sent the outcome (`ok`, `fail`, `unknown`). It never
ends by itself; the runner stops asking. `WORKLOADS` is the table.
"""

from recollect.verify.running.workloads.append import append, mixed, trimmed, turns
from recollect.verify.running.workloads.changes import changes
from recollect.verify.running.workloads.contents import contents, left_out
from recollect.verify.running.workloads.filling import Filling
from recollect.verify.running.workloads.intents import (
    CALLED,
    AppendTurn,
    Body,
    ForkOff,
    Intent,
    Plan,
    Planner,
    ReadBack,
    ReplaceAll,
    SaveBack,
    TakeBack,
    Workload,
    reads,
)
from recollect.verify.running.workloads.rewriting import compact, forget, rewrite, summarise
from recollect.verify.running.workloads.watching import context, follow, search, watch

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        append,
        turns,
        mixed,
        contents,
        trimmed,
        rewrite,
        compact,
        summarise,
        forget,
        changes,
        follow,
        context,
        search,
        watch,
    )
}

__all__ = [
    "CALLED",
    "WORKLOADS",
    "AppendTurn",
    "Body",
    "Filling",
    "ForkOff",
    "Intent",
    "Plan",
    "Planner",
    "ReadBack",
    "ReplaceAll",
    "SaveBack",
    "TakeBack",
    "Workload",
    "left_out",
    "reads",
]
