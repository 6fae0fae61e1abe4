"""The blocks of the documentation, and how they are run.

A block of Python and a command in a block are run unless they are named here; so whoever writes a page gets a test, and
whoever cannot have one gives the reason, or says which test it is.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
PAGES = [
    PROJECT / "README.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted(PROJECT.glob("examples/*/*.md")),
]
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DATA = ("yaml", "json", "toml")


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    text: str

    @property
    def beginning(self) -> str:
        return self.text.splitlines()[0].strip()

    @property
    def commands(self) -> list[str]:
        """Without the prompt and the remark behind it. The lines of a suite's report begin with our name too."""
        lines = [line.removeprefix("$ ") for line in self.text.splitlines()]
        return [
            line.partition("  #")[0].strip()
            for line in lines
            if line.startswith("recollect ") or "recollect doctor --json" in line
        ]


def blocks(page: Path) -> list[Block]:
    name = str(page.relative_to(PROJECT))
    return [Block(name, language, text) for language, text in FENCED.findall(page.read_text())]


ALL = [block for page in PAGES for block in blocks(page)]


def python_of(page: str) -> list[str]:
    return [block.text for block in ALL if block.page == page and block.language == "python"]


def run_python(code: str, names: dict[str, Any], page: str) -> None:
    """As in an asynchronous shell, where `await` needs no function around it."""
    compiled = compile(code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(compiled, names)
    if inspect.iscoroutine(waiting):
        asyncio.run(waiting)


ELSEWHERE = {
    "docs/pytest.md": "tests/docs/test_pytest_page.py",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/incidents.md": "tests/docs/test_incidents.py",
    "docs/service-under-test.md": "tests/service/test_example.py",
    **{
        f"docs/adapters/{name}.md": "tests/adapters/test_pages.py"
        for name in (
            "adk",
            "agent-framework",
            "langchain",
            "langgraph",
            "openai-agents",
            "pydantic-ai",
        )
    },
}
"""Pages with a test of their own, which runs all of their code."""

NOT_HERE = {
    "import chromadb": "langchain-chroma is in none of our environments",
    "recollect verify langgraph.sqlite": "needs the named stores: `make test-named` verifies them all",
    "recollect audit sqlite:///agents.db --target agents.sqlite": "likewise, tests/verify/test_named_audits.py",
    "recollect verify chroma --policy server --fault upgrade": "needs a download: tests/engines",
}
"""Code by its first line and commands as they are written, with the reason why no test here runs them."""

NIGHTLY = (
    "recollect verify redis sqlite postgres --fault power-loss",
    "recollect verify shop.memory:make_store --engine redis --full --shard 1/4 --out memory-runs/1",
    "recollect explore myapp.memory:make_store --engine redis --interleavings --cancel",
    "recollect audit redis+cluster:",
    "recollect audit redis+sentinel:",
    "recollect explore myapp.memory:make_store --engine postgres",
    "recollect explore sqlite --level 3",
    "recollect report memory-runs/1",
)
"""Commands that take long however they are called. They run with RECOLLECT_FULL_DOCS=1; the others also without it, for
a second or two where they have a budget."""

SHOWN = {
    "docs/audit.md": {"sqlite at sqlite:///memory.db": "compared by test_the_audit_of_the_page"},
    "docs/doctor.md": {
        "redis 7.0.15 at": "the command is run by tests/docs/test_report_docs.py; figures differ"
    },
    "docs/engines.md": {"$ recollect engines": "what is installed differs"},
    "docs/interleavings.md": {
        "myapp.memory:make_store on redis": "compared by test_the_order_of_the_page",
        "$ recollect explore": "its command is run; the names: tests/interleavings/test_planted.py",
        "a   append one message": "the language of --program: tests/interleavings/test_program.py",
        "Tried: every": "figures of one run",
    },
    "docs/named-stores.md": {"langgraph.sqlite (": "the first line of a report that needs that package"},
    "docs/power-loss.md": {
        "engine + shim": "a drawing",
        "$ recollect explore": "the same report: tests/test_explore.py",
    },
    "docs/pytest.md": {
        "$ pytest": "figures of one run; examples/redis-chat is its suite: tests/examples",
        "E       In this order": "compared by test_two_requests_at_once",
    },
    "docs/stores/redis.md": {"CONFIG SET appendonly yes": "run by test_the_settings_of_the_page"},
    "docs/tutorial.md": {"✗ Finding 1": "compared by test_the_commands_say_what_the_page_says"},
    "docs/verdicts.md": {
        "python -c": "run by tests/docs/test_report_docs.py",
        "at most about one second": "compared by test_the_promise_that_is_quoted",
    },
    "docs/watch.md": {'{"time"': "a line of a run; its fields: tests/watch"},
    "README.md": {
        "1 user I am Xiao Li": "compared by test_python",
        "make verify": "make test is this suite, and `recollect verify` is in the nightly workflow",
    },
}
"""Blocks that are neither code nor commands of ours: output, and what is typed elsewhere."""
