"""A commit that was told to stop waiting for its standbys: an operator cancelled the wait.

PostgreSQL says so with a warning, and that the commit succeeded. It did here, perhaps not there. Of what is run here,
only VACUUM causes other warnings.
"""

from typing import Any

import asyncpg

from recollect.errors import OutcomeUnknown
from recollect.stores.postgres.hosts import Connection

WARNING: str = asyncpg.PostgresWarning.sqlstate
TOLD = "PostgreSQL was told to stop waiting for its standbys: written here, perhaps not there"
WAIT_FOR_STANDBYS = "SELECT pg_logical_emit_message(true, 'recollect', '')"
"""A commit that changes nothing would not wait: a removal that is repeated, because nobody waited for the first one."""


class AbandonedWaits:
    """Those of a pool's connections."""

    def __init__(self) -> None:
        self._heard: set[Connection] = set()

    def listen(self, connection: Connection) -> None:
        connection.add_log_listener(self._hear)

    def check(self, connection: Connection) -> None:
        """After a change was made."""
        if self._heard and connection in self._heard:
            self._heard.discard(connection)
            raise OutcomeUnknown(TOLD)

    def disregard(self, connection: Connection) -> None:
        """After VACUUM, which warns of the tables that it skips."""
        self._heard.discard(connection)

    def _hear(self, connection: Any, message: asyncpg.PostgresLogMessage) -> None:
        if message.sqlstate == WARNING:
            self._heard.add(connection)
