"""Chat histories of langchain-community, made as its documentation makes them: one object for each conversation."""

from typing import Any

from langchain_community.chat_message_histories import RedisChatMessageHistory, SQLChatMessageHistory

from recollect.verify.engines.endpoint import Endpoint


def sql(endpoint: Endpoint, session: str) -> Any:
    return SQLChatMessageHistory(session, connection=f"sqlite:///{endpoint.path}")


def redis_list(endpoint: Endpoint, session: str) -> Any:
    return RedisChatMessageHistory(session, url=endpoint.url)
