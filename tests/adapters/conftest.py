"""The adapters' tests run where the frameworks are installed: `make test-adapters`."""

from importlib.util import find_spec

from tests.contract.conftest import engine_of, place, session, store

__all__ = ["engine_of", "place", "session", "store"]

NEEDS = {
    "test_adk": "google.adk",
    "test_agent_framework": "agent_framework",
    "test_examples": "google.adk",
    "test_langchain": "langchain_core",
    "test_langgraph": "langgraph",
    "test_openai_agents": "agents",
    "test_pages": "google.adk",
    "test_pydantic_ai": "pydantic_ai",
}
"""What the files need whose names begin so."""


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


collect_ignore_glob = [f"{name}*.py" for name, package in NEEDS.items() if not _installed(package)]
