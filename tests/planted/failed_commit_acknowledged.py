"""A commit that fails is logged, and acknowledged anyway: an error that is swallowed is no message stored."""

import logging
import sqlite3
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.connection_per_call import PerCall
from tests.planted.planted import Planted

PLANTED = Planted(
    *("sqlite", "wal-full", "fsync-error", "turns"),
    ("dropped", "lost-tail", "hole"),
    twin_status="documented-loss",
)


class Logged(PerCall):
    def append_message(self, session: str, message: Any) -> None:
        try:
            super().append_message(session, message)
        except sqlite3.OperationalError:
            logging.getLogger(__name__).exception("could not store a message")


def factory(endpoint: Endpoint) -> PerCall:
    return Logged(endpoint)


def twin(endpoint: Endpoint) -> PerCall:
    return PerCall(endpoint)
