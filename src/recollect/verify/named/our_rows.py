"""The rows of our adapters whose frameworks keep more than a list of messages: revisions, state, checkpoints."""

from recollect.verify.target.registry import NamedTarget

_HERE = "recollect.verify.named"

FRAMEWORKS = {
    f"recollect.{name}.{engine}": NamedTarget(f"{_HERE}.{module}:factory", engine, (requirement,))
    for name, module, requirement in (
        ("adk", "our_adk", "google-adk>=2.13,<3"),
        ("langgraph", "our_langgraph", "langgraph>=1.2,<1.3"),
        ("langgraph-store", "our_langgraph_store", "langgraph>=1.2,<1.3"),
        ("pydantic-ai", "our_pydantic_ai", "pydantic-ai-slim>=2.66,<3"),
    )
    for engine in ("sqlite", "redis", "postgres")
}
