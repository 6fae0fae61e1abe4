"""To replace a session's messages, its row is deleted and made anew: its metadata goes with it."""

from collections.abc import Sequence

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.annotated_rows import AnnotatedRows
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "none", "changes", ("dropped",))


class MadeAnew(AnnotatedRows):
    def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        with self.changing(session, expect):
            position = self.position(session)
            self.db.execute("DELETE FROM said WHERE session = ?", (session,))
            self.db.execute("DELETE FROM sessions WHERE name = ?", (session,))
            self.db.execute("INSERT INTO sessions VALUES (?, ?, '{}')", (session, position))
            self.insert(session, messages)


def factory(endpoint: Endpoint) -> MadeAnew:
    return MadeAnew(endpoint)


def twin(endpoint: Endpoint) -> AnnotatedRows:
    return AnnotatedRows(endpoint)
