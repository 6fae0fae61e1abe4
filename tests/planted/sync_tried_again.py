"""A failed fsync is tried again until it succeeds: the kernel has dropped the pages, and the success means nothing."""

import time
from pathlib import Path

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_bodies import SqliteBodies

PLANTED = Planted("sqlite", "wal-full", "fsync-error", "turns", ("unreadable",))


class TriedAgain(SqliteBodies):
    def sync(self, path: Path) -> None:
        for _ in range(30):
            try:
                return super().sync(path)
            except OSError:
                time.sleep(0.05)
        return super().sync(path)


def factory(endpoint: Endpoint) -> TriedAgain:
    return TriedAgain(endpoint)


def twin(endpoint: Endpoint) -> SqliteBodies:
    return SqliteBodies(endpoint)
