"""The messages that mem0 keeps beside its memories: the last ten of a scope."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from mem0.memory.storage import SQLiteManager

from recollect.verify.engines.endpoint import Endpoint


class TableRow(TypedDict):
    """The columns of its table."""

    role: str
    content: str
    name: NotRequired[str]


class LastMessages:
    """With the scope first, and the messages behind it."""

    def __init__(self, manager: SQLiteManager) -> None:
        self.manager = manager

    def save_messages(self, session: str, messages: Sequence[TableRow]) -> None:
        self.manager.save_messages([dict(message) for message in messages], session)

    def get_messages(self, session: str) -> list[dict[str, Any]]:
        found = self.manager.get_last_messages(session)
        names = ("role", "content", "name")
        return [{name: one[name] for name in names if one[name] is not None} for one in found]

    def close(self) -> None:
        self.manager.close()


def history(endpoint: Endpoint) -> LastMessages:
    return LastMessages(SQLiteManager(str(endpoint.path)))
