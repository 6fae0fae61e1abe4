"""The rows of the registry that are ours. What they lead to is imported when a store is made, and not to list them."""

from recollect.verify.target.registry import NamedTarget

_HERE = "recollect.verify.named"
_AGENTS = ">=0.24,<0.25"
_LISTED = f"{_HERE}.existing"
_VECTORS = f"{_HERE}.langchain_vectors"
_COMMUNITY = "langchain-community>=0.4,<0.5"

AGENTS = {
    "agents.sqlite": NamedTarget(
        f"{_HERE}.agents:sqlite", "sqlite", (f"openai-agents{_AGENTS}",), sessions=f"{_LISTED}:agents"
    ),
    "agents.async-sqlite": NamedTarget(
        f"{_HERE}.agents:async_sqlite",
        "sqlite",
        (f"openai-agents{_AGENTS}", "aiosqlite"),
        sessions=f"{_LISTED}:agents",
        imports=("agents.extensions.memory.async_sqlite_session",),
    ),
    "agents.advanced": NamedTarget(
        f"{_HERE}.agents:advanced",
        "sqlite",
        (f"openai-agents{_AGENTS}",),
        sessions=f"{_LISTED}:agents_branches",
        imports=("agents.extensions.memory.advanced_sqlite_session",),
    ),
    "agents.redis": NamedTarget(
        f"{_HERE}.agents:redis",
        "redis",
        (f"openai-agents[redis]{_AGENTS}",),
        sessions=f"{_LISTED}:agents_redis",
        imports=("agents.extensions.memory.redis_session",),
    ),
    "agents.sqlalchemy": NamedTarget(
        f"{_HERE}.agents:sqlalchemy",
        "postgres",
        (f"openai-agents[sqlalchemy]{_AGENTS}", "asyncpg"),
        sessions=f"{_LISTED}:agents",
        imports=("agents.extensions.memory.sqlalchemy_session", "sqlalchemy.dialects.postgresql.asyncpg"),
    ),
}

LANGCHAIN = {
    "langchain.sql": NamedTarget(
        f"{_HERE}.langchain:sql", "sqlite", (_COMMUNITY, "sqlalchemy"), sessions=f"{_LISTED}:langchain"
    ),
    "langchain.redis-list": NamedTarget(
        f"{_HERE}.langchain:redis_list",
        "redis",
        (_COMMUNITY, "redis"),
        sessions=f"{_LISTED}:langchain_redis",
    ),
    "langchain.postgres": NamedTarget(
        f"{_HERE}.langchain_postgres:history",
        "postgres",
        ("langchain-postgres>=0.0.19,<0.1", "psycopg[binary]"),
        sessions=f"{_LISTED}:langchain_postgres",
    ),
    "langchain.chroma": NamedTarget(
        f"{_VECTORS}:chroma",
        "chroma",
        ("langchain-chroma>=1.1,<2", "chromadb"),
        imports=("chromadb", "langchain_chroma"),
    ),
    "langchain.pgvector": NamedTarget(
        f"{_VECTORS}:pgvector",
        "postgres@18",  # the build that comes as a wheel has the extension
        ("langchain-postgres>=0.0.19,<0.1", "psycopg[binary]"),
        prepare=f"{_VECTORS}:prepare_pgvector",
        imports=("langchain_postgres", "sqlalchemy.dialects.postgresql.psycopg"),
    ),
    "langchain.lancedb": NamedTarget(
        f"{_VECTORS}:lancedb",
        "sqlite",
        (_COMMUNITY, "lancedb>=0.40,<0.41"),
        imports=("pyarrow", "langchain_community.vectorstores.lancedb"),
        unrecorded="LanceDB renames files by system calls of its own, which the disk recorder does not see",
    ),
    "langchain.faiss": NamedTarget(
        f"{_VECTORS}:faiss",
        "sqlite",
        (_COMMUNITY, "faiss-cpu>=1.15,<2"),
        imports=("faiss", "langchain_community.vectorstores.faiss"),
    ),
}

ADAPTERS = {
    f"recollect.{name}.{engine}": NamedTarget(f"{_HERE}.{module}:factory", engine, (requirement,))
    for name, module, requirement in (
        ("openai-agents", "our_agents", f"openai-agents{_AGENTS}"),
        ("langchain", "our_langchain", "langchain-core>=1.7,<2"),
        ("agent-framework", "our_agent_framework", "agent-framework-core>=1.23,<2"),
    )
    for engine in ("sqlite", "redis", "postgres")
}
