"""Chat stores of LlamaIndex: one for all conversations, which are keys in it."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint


def sql(endpoint: Endpoint) -> Any:
    from llama_index.core.storage.chat_store.sql import (
        SQLAlchemyChatStore,  # the others are distributions apart
    )

    return SQLAlchemyChatStore("chat_history", async_database_uri=f"sqlite+aiosqlite:///{endpoint.path}")


def redis(endpoint: Endpoint) -> Any:
    from llama_index.storage.chat_store.redis import RedisChatStore

    return RedisChatStore(redis_url=endpoint.url)


def postgres(endpoint: Endpoint) -> Any:
    from llama_index.storage.chat_store.postgres import PostgresChatStore

    return PostgresChatStore.from_uri(uri=endpoint.url)
