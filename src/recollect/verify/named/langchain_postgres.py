"""The chat history of langchain-postgres: its table is made before, and its sessions are UUIDs."""

import uuid
from typing import Any

import psycopg
from langchain_postgres import PostgresChatMessageHistory

from recollect.verify.engines.endpoint import Endpoint

_TABLE = "chat_history"


def prepare(endpoint: Endpoint) -> None:
    with psycopg.connect(endpoint.url) as connection:
        PostgresChatMessageHistory.create_tables(connection, _TABLE)


def history(endpoint: Endpoint, session: str) -> Any:
    return PostgresChatMessageHistory(_TABLE, _id(session), sync_connection=psycopg.connect(endpoint.url))


def _id(session: str) -> str:
    """The session's own, if it is a UUID already."""
    try:
        return str(uuid.UUID(session))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, session))
