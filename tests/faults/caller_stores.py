"""Small stores that tell, or mind, who calls them: which process, and which thread."""

import os
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

from recollect.message import Damaged, Message, decode, encode
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.redis_list import RedisList


class SaysWho(RedisList):
    """A correct one; it prints the process and the thread of every append."""

    def append_message(self, session: str, message: Any) -> None:
        print(f"called by {os.getpid()} {threading.get_ident()}")
        super().append_message(session, message)


class DiesOnce(RedisList):
    """The process ends in the middle of its fifth append, whoever asked for it."""

    def append_message(self, session: str, message: Any) -> None:
        if self.client.incr("appends") == 5:
            os._exit(3)
        super().append_message(session, message)


class OneThread:
    """`sqlite3` as it is: the connection belongs to the thread that opened it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.connection = sqlite3.connect(str(endpoint.path))
        self.connection.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, message TEXT)")

    def append(self, session: str, messages: Sequence[Message]) -> None:
        with self.connection:
            rows = [(session, encode(message).decode()) for message in messages]
            self.connection.executemany("INSERT INTO said VALUES (?, ?)", rows)

    def history(self, session: str) -> list[Message | Damaged]:
        rows = self.connection.execute(
            "SELECT message FROM said WHERE session = ? ORDER BY rowid", (session,)
        )
        return [decode(message.encode()) for (message,) in rows]
