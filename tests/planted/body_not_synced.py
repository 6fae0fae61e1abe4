"""The row is committed, the file with the text was never synced: after a power loss the row points to nothing."""

from pathlib import Path

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_bodies import SqliteBodies

PLANTED = Planted("sqlite", "wal-full", "power-loss", "turns", ("unreadable",))


class NotSynced(SqliteBodies):
    def sync(self, path: Path) -> None:
        """The database syncs; that the file does not is seen by nobody until the power goes."""


def factory(endpoint: Endpoint) -> NotSynced:
    return NotSynced(endpoint)


def twin(endpoint: Endpoint) -> SqliteBodies:
    return SqliteBodies(endpoint)
