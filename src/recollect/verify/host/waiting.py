"""Waiting for a condition with a deadline, the only kind of waiting that the kit does."""

from __future__ import annotations

import time
from collections.abc import Callable

from recollect.verify.host.errors import EngineError

POLL_S = 0.001


def wait_until(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    """Return when `condition()` is true; after `timeout_s` raise with `otherwise`, which says what did not happen."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up:
            raise EngineError(f"{otherwise} within {timeout_s:g} s")
        time.sleep(POLL_S)
