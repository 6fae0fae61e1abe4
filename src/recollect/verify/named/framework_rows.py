"""The rows of other frameworks' stores that are used in several steps, or with messages of their own."""

from recollect.verify.target.registry import NamedTarget

_HERE = "recollect.verify.named"
_LISTED = f"{_HERE}.existing"
_ONE_RUN = ("single_writer",)
"""One run at a time on a thread or session is the application's business: nothing is compared when it is saved."""

LANGGRAPH = {
    "langgraph.sqlite": NamedTarget(
        f"{_HERE}.langgraph:sqlite",
        "sqlite",
        ("langgraph-checkpoint-sqlite>=3.1,<4",),
        _ONE_RUN,
        sessions=f"{_LISTED}:langgraph",
        imports=("langgraph.checkpoint.sqlite",),
    ),
    "langgraph.postgres": NamedTarget(
        f"{_HERE}.langgraph:postgres",
        "postgres",
        ("langgraph-checkpoint-postgres>=3.2,<4", "psycopg[binary]", "psycopg-pool"),
        _ONE_RUN,
        f"{_HERE}.langgraph:prepare_postgres",
        sessions=f"{_LISTED}:langgraph",
        imports=("langgraph.checkpoint.postgres", "psycopg_pool"),
    ),
}

LLAMAINDEX = {
    "llamaindex.sql": NamedTarget(
        f"{_HERE}.llamaindex:sql",
        "sqlite",
        ("llama-index-core>=0.14,<0.15", "aiosqlite"),
        ("ordered_by_clock",),
        sessions=f"{_LISTED}:llamaindex",
        imports=("llama_index.core.storage.chat_store.sql", "sqlalchemy.dialects.sqlite.aiosqlite"),
    ),
    "llamaindex.redis": NamedTarget(
        f"{_HERE}.llamaindex:redis",
        "redis",
        ("llama-index-storage-chat-store-redis>=0.8,<0.9",),
        sessions=f"{_LISTED}:llamaindex_redis",
        imports=("llama_index.storage.chat_store.redis",),
    ),
    "llamaindex.postgres": NamedTarget(
        f"{_HERE}.llamaindex:postgres",
        "postgres",
        ("llama-index-storage-chat-store-postgres>=0.5,<0.6",),
        sessions=f"{_LISTED}:llamaindex_postgres",
        imports=(
            "llama_index.storage.chat_store.postgres",
            "sqlalchemy.dialects.postgresql.asyncpg",
            "sqlalchemy.dialects.postgresql.psycopg",
        ),
    ),
}

ADK = {
    "adk.sqlite": NamedTarget(
        f"{_HERE}.adk:sqlite",
        "sqlite",
        ("google-adk>=2.13,<3", "aiosqlite"),
        ("ordered_by_clock",),
        sessions=f"{_LISTED}:adk",
        reading=f"{_HERE}.adk:existing_sqlite",
        imports=("google.adk.sessions.sqlite_session_service",),
    ),
    "adk.database": NamedTarget(
        f"{_HERE}.adk:database",
        "postgres",
        ("google-adk>=2.13,<3", "sqlalchemy", "asyncpg"),
        ("ordered_by_clock",),
        sessions=f"{_LISTED}:adk",
        reading=f"{_HERE}.adk:existing_database",
        imports=("google.adk.sessions.database_session_service", "sqlalchemy.dialects.postgresql.asyncpg"),
    ),
    "adk.redis": NamedTarget(
        f"{_HERE}.adk:redis",
        "redis",
        ("google-adk>=2.13,<3", "redis"),
        sessions=f"{_LISTED}:adk_redis",
        reading=f"{_HERE}.adk:existing_redis",
        imports=("google.adk.integrations.redis",),
    ),
}

OTHERS = {
    "agent-framework.redis": NamedTarget(
        f"{_HERE}.agent_framework:redis", "redis", ("agent-framework-redis>=1.0.0b261022,<2",)
    ),
    "agno.sqlite": NamedTarget(
        f"{_HERE}.agno:sqlite",
        "sqlite",
        ("agno>=3.1,<4", "sqlalchemy"),
        _ONE_RUN,
        sessions=f"{_LISTED}:agno",
        reading=f"{_HERE}.agno:existing_sqlite",
        imports=("agno.db.sqlite",),
    ),
    "agno.postgres": NamedTarget(
        f"{_HERE}.agno:postgres",
        "postgres",
        ("agno>=3.1,<4", "sqlalchemy", "psycopg[binary]"),
        _ONE_RUN,
        sessions=f"{_LISTED}:agno",
        reading=f"{_HERE}.agno:existing_postgres",
        imports=("agno.db.postgres", "sqlalchemy.dialects.postgresql.psycopg"),
    ),
    "mem0.history": NamedTarget(
        f"{_HERE}.mem0:history",
        "sqlite",
        ("mem0ai>=2.2,<3",),
        ("keeps_last=10", "ordered_by_clock"),
        sessions=f"{_LISTED}:mem0",
    ),
    "strands.file": NamedTarget(f"{_HERE}.strands:file", "sqlite", ("strands-agents>=1.62,<2",), _ONE_RUN),
}
