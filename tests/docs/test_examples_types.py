"""The examples of the README and of the library's pages pass mypy, as a reader's editor would check them."""

import re
import textwrap
from pathlib import Path

import pytest
from mypy import api

PROJECT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "docs/library.md", "docs/recall.md", "docs/stores/redis.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> dict[str, str]:
    """Those that use the library; code of a reader's own has no types."""
    found: dict[str, str] = {}
    for page in PAGES:
        for number, block in enumerate(BLOCK.findall((PROJECT / page).read_text())):
            if "from recollect" in block:
                name = re.sub(r"\W", "_", f"{page}_{number}")
                found[name] = as_module(block)
    return found


def as_module(block: str) -> str:
    """What is typed into an asynchronous shell is the body of a function here."""
    if not re.search(r"^(async with|await) ", block, re.MULTILINE):
        return block
    head, _, body = block.partition("\n\n")
    return f"{head}\n\nasync def example() -> None:\n{textwrap.indent(body, '    ')}"


def complaints(modules: dict[str, str], folder: Path) -> str:
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    paths = [str(folder / f"{name}.py") for name in modules]
    options = ["--strict", "--config-file", str(PROJECT / "pyproject.toml"), "--no-error-summary"]
    output, errors, _ = api.run([*options, "--cache-dir", str(PROJECT / ".mypy_cache"), *paths])
    return output + errors


def test_examples_pass_mypy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    modules = examples()
    assert len(modules) >= 5
    wrong = "from recollect.sync import open_store\n\nopen_store('sqlite:///m.db', durabilty='fsynced')\n"
    said = complaints({**modules, "misspelt": wrong}, tmp_path)
    others = [line for line in said.splitlines() if "misspelt.py" not in line]
    assert others == []
    assert 'Unexpected keyword argument "durabilty"' in said, (
        "options are known by name, without async as well"
    )
