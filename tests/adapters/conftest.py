"""The adapters' tests run where the frameworks are installed: `make test-adapters`."""

from importlib.util import find_spec

from tests.contract.conftest import engine_of, place, session, store

__all__ = ["engine_of", "place", "session", "store"]

NEEDS = {
    "test_adk.py": "google.adk",
    "test_adk_audit.py": "google.adk",
    "test_agent_framework.py": "agent_framework",
    "test_examples.py": "google.adk",
    "test_openai_agents.py": "agents",
    "test_pages.py": "google.adk",
    "test_langchain.py": "langchain_core",
    "test_langgraph.py": "langgraph",
    "test_langgraph_serializing.py": "langgraph",
    "test_langgraph_store.py": "langgraph",
    "test_langgraph_witness.py": "langgraph",
    "test_pydantic_ai.py": "pydantic_ai",
}


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


collect_ignore = [name for name, package in NEEDS.items() if not _installed(package)]
