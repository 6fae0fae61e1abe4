"""Which message has an id is kept in the process that wrote it: another one lists the message, and does not find it."""

from collections.abc import Sequence

from recollect import Message
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.annotated_rows import AnnotatedRows
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "none", "changes", ("index-divergence",))


class KnownHere(AnnotatedRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.known: set[tuple[str, str]] = set()

    def insert(self, session: str, messages: Sequence[Message]) -> None:
        super().insert(session, messages)
        self.known.update((session, message.id) for message in messages)

    def find(self, session: str, message_id: str) -> Stored | None:
        return super().find(session, message_id) if (session, message_id) in self.known else None


def factory(endpoint: Endpoint) -> KnownHere:
    return KnownHere(endpoint)


def twin(endpoint: Endpoint) -> AnnotatedRows:
    return AnnotatedRows(endpoint)
