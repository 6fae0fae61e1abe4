"""Databases of Agno, used as an agent uses them: the session is read, a run joins it, both are saved."""

import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from agno.db.base import SessionType
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session import AgentSession
from agno.session._utils import resolve_run_index

from recollect.errors import Refused
from recollect.verify.engines.endpoint import Endpoint

AGENT = "recollect"


class ChatLine(TypedDict):
    """What a conversation is to an agent; instructions are written anew for each run, and are not read back."""

    role: Literal["user", "assistant"]
    content: str


class Runs:
    """A turn is a run."""

    def __init__(self, database: Any) -> None:
        self.database = database

    def add_messages(self, session: str, messages: Sequence[ChatLine]) -> None:
        found = self._session(session) or _new(session)
        said = [Message(role=message["role"], content=message["content"]) for message in messages]
        run = RunOutput(
            run_id=str(uuid.uuid4()),
            agent_id=AGENT,
            session_id=session,
            messages=said,
            status=RunStatus.completed,
        )
        found.upsert_run(run=run)
        place = resolve_run_index(found, run)
        self.database.upsert_session(session=found)
        self.database.upsert_run(run=run, session_id=session, run_index=place)

    def get_messages(self, session: str) -> list[ChatLine]:
        found = self._session(session)
        messages = [] if found is None else found.get_messages(agent_id=AGENT)
        return [{"role": message.role, "content": message.content} for message in messages]

    def close(self) -> None:
        self.database.close()

    def _session(self, session: str) -> Any:
        return self.database.get_session(session_id=session, session_type=SessionType.AGENT)


class AgnoSessions(Runs):
    """The sessions of every agent, to be read."""

    def add_messages(self, session: str, messages: Sequence[ChatLine]) -> None:
        raise Refused(f"session {session!r}: an audit only reads")

    def get_messages(self, session: str) -> list[Any]:
        found = self._session(session)
        return [] if found is None else found.get_messages()


def _new(session: str) -> AgentSession:
    return AgentSession(session_id=session, agent_id=AGENT, session_data={}, created_at=int(time.time()))


def sqlite(endpoint: Endpoint) -> Runs:
    from agno.db.sqlite import SqliteDb  # each needs a driver of its own

    return Runs(SqliteDb(db_file=str(endpoint.path)))


def postgres(endpoint: Endpoint) -> Runs:
    from agno.db.postgres import PostgresDb

    return Runs(PostgresDb(db_url=endpoint.url.replace("postgresql://", "postgresql+psycopg://", 1)))


def existing_sqlite(endpoint: Endpoint) -> AgnoSessions:
    return AgnoSessions(sqlite(endpoint).database)


def existing_postgres(endpoint: Endpoint) -> AgnoSessions:
    return AgnoSessions(postgres(endpoint).database)
