"""The rows of the registry that are ours. What they lead to is imported when a store is made, and not to list them."""

from recollect.verify.target.registry import NamedTarget

_HERE = "recollect.verify.named"
_AGENTS = ">=0.24,<0.25"
_COMMUNITY = "langchain-community>=0.4,<0.5"

AGENTS = {
    "agents.sqlite": NamedTarget(f"{_HERE}.agents:sqlite", "sqlite", (f"openai-agents{_AGENTS}",)),
    "agents.async-sqlite": NamedTarget(
        f"{_HERE}.agents:async_sqlite", "sqlite", (f"openai-agents{_AGENTS}", "aiosqlite")
    ),
    "agents.advanced": NamedTarget(f"{_HERE}.agents:advanced", "sqlite", (f"openai-agents{_AGENTS}",)),
    "agents.redis": NamedTarget(f"{_HERE}.agents:redis", "redis", (f"openai-agents[redis]{_AGENTS}",)),
    "agents.sqlalchemy": NamedTarget(
        f"{_HERE}.agents:sqlalchemy", "postgres", (f"openai-agents[sqlalchemy]{_AGENTS}", "asyncpg")
    ),
}

LANGCHAIN = {
    "langchain.sql": NamedTarget(f"{_HERE}.langchain:sql", "sqlite", (_COMMUNITY, "sqlalchemy")),
    "langchain.redis-list": NamedTarget(f"{_HERE}.langchain:redis_list", "redis", (_COMMUNITY, "redis")),
    "langchain.postgres": NamedTarget(
        f"{_HERE}.langchain_postgres:history",
        "postgres",
        ("langchain-postgres>=0.0.19,<0.1", "psycopg[binary]"),
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
