"""How many examples Hypothesis tries: a sample, or all of them with `RECOLLECT_FULL_EXAMPLES=1`, as every night."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("RECOLLECT_FULL_EXAMPLES") == "1"


def examples(count: int) -> int:
    """For pure functions, whose tests cost nothing but processor time."""
    return count if IS_FULL else count // 4
