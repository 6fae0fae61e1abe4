"""Checkpoint savers of LangGraph: a thread's state is read, added to and put."""

import sqlite3
from functools import cache
from typing import Any

from recollect.verify.engines.endpoint import Endpoint


def sqlite(endpoint: Endpoint) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver  # each is a distribution of its own

    return SqliteSaver(sqlite3.connect(str(endpoint.path), check_same_thread=False))


def prepare_postgres(endpoint: Endpoint) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(endpoint.url) as saver:
        saver.setup()


def postgres(endpoint: Endpoint) -> Any:
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver(_pool(endpoint.url))


@cache
def _pool(url: str) -> Any:
    """As its documentation has it for servers: connections that commit by themselves."""
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return ConnectionPool(url, kwargs=settings, min_size=1, max_size=4, timeout=10, open=True)
