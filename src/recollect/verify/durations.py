"""Durations as people write them: ``60s``, ``5m``, ``7d``."""

from __future__ import annotations

import re

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip())
    if found is None:
        raise ValueError(f"{text!r}: a number with ms, s, m, h or d, such as 60s or 7d")
    return float(found[1]) * _UNITS_S[found[2]]
