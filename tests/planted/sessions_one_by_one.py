"""A turn over two sessions commits in each of them by itself: the application dies between, and one has its part."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "kill-app-at-line", "changes", ("torn-turn",), variant="every-line")


class Together(SqliteRows):
    def append(self, session: str, messages: Sequence[Message]) -> None:
        with self.transaction():
            self.insert(session, messages)

    def append_many(self, turns: Mapping[str, Sequence[Message]]) -> None:
        with self.transaction():
            for session, messages in turns.items():
                self.insert(session, messages)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def insert(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self.append_message(session, {"role": message.role, "content": message.content})

    def history(self, session: str) -> list[Any]:
        return self.get_history(session)


class OneByOne(Together):
    def append_many(self, turns: Mapping[str, Sequence[Message]]) -> None:
        for session, messages in turns.items():
            self.append(session, messages)


def factory(endpoint: Endpoint) -> OneByOne:
    return OneByOne(endpoint)


def twin(endpoint: Endpoint) -> Together:
    return Together(endpoint)
