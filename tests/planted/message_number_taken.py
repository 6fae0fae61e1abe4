"""A repository of sessions, agents and numbered messages: a number that somebody else has taken is written over."""

import json
from dataclasses import dataclass
from typing import Any

from recollect.errors import NotWritten
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update", "dropped"))


@dataclass
class Session:
    session_id: str
    session_type: str


@dataclass
class SessionAgent:
    agent_id: str
    state: dict[str, Any]
    conversation_manager_state: dict[str, Any]


@dataclass
class SessionMessage:
    message: dict[str, Any]
    message_id: int

    @classmethod
    def from_message(cls, message: dict[str, Any], index: int) -> "SessionMessage":
        return cls(message, index)

    def to_message(self) -> dict[str, Any]:
        return self.message


class Overwriting:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def read_session(self, session_id: str) -> Any:
        return self.client.get(f"session:{session_id}")

    def create_session(self, session: Session) -> None:
        self.client.set(f"session:{session.session_id}", session.session_type)

    def read_agent(self, session_id: str, agent_id: str) -> Any:
        return self.client.hget(f"agents:{session_id}", agent_id)

    def create_agent(self, session_id: str, session_agent: SessionAgent) -> None:
        self.client.hset(f"agents:{session_id}", session_agent.agent_id, json.dumps(session_agent.state))

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage) -> None:
        text = json.dumps(session_message.message)
        self.client.hset(f"messages:{session_id}", session_message.message_id, text)

    def list_messages(self, session_id: str, agent_id: str) -> list[SessionMessage]:
        found = self.client.hgetall(f"messages:{session_id}")
        return [SessionMessage(json.loads(found[place]), int(place)) for place in sorted(found, key=int)]


class Refusing(Overwriting):
    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage) -> None:
        text = json.dumps(session_message.message)
        if not self.client.hsetnx(f"messages:{session_id}", session_message.message_id, text):
            raise NotWritten(f"message {session_message.message_id} is there already; list them again")


def factory(endpoint: Endpoint) -> Overwriting:
    return Overwriting(endpoint)


def twin(endpoint: Endpoint) -> Refusing:
    return Refusing(endpoint)
