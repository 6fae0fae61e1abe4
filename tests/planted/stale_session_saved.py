"""A session service, `append_event` and `get_session`, that writes the caller's copy of the session: what others
appended since it was fetched is overwritten."""

import json
from dataclasses import dataclass
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect
from tests.planted.whole_list_overwritten import SWAP

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))


@dataclass
class Session:
    id: str
    events: list[Any]
    raw: bytes


class StaleSessionError(ValueError):
    """Fetch it again."""


class Overwriting:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def create_session(self, *, app_name: str, user_id: str, session_id: str) -> Session:
        return Session(session_id, [], b"")

    def get_session(self, *, app_name: str, user_id: str, session_id: str) -> Session | None:
        raw = self.client.get(session_id)
        return None if raw is None else Session(session_id, json.loads(raw), raw)

    def append_event(self, session: Session, event: dict[str, Any]) -> None:
        self.write(session, json.dumps([*session.events, event]))

    def write(self, session: Session, text: str) -> None:
        self.client.set(session.id, text)


class Comparing(Overwriting):
    def write(self, session: Session, text: str) -> None:
        if not self.client.eval(SWAP, 1, session.id, session.raw, text):
            raise StaleSessionError(session.id)


def factory(endpoint: Endpoint) -> Overwriting:
    return Overwriting(endpoint)


def twin(endpoint: Endpoint) -> Comparing:
    return Comparing(endpoint)
