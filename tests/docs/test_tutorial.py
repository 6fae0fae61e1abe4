"""The tutorial: every version of its store works, and every command says what the page says.

The commands take minutes, so they run with RECOLLECT_FULL_TUTORIAL=1; without it only the versions do.
"""

import os
import re
import shlex
import subprocess
import sys
import types
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect import Message
from recollect.verify.engines import Engine

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FINDING = re.compile(r"✗ Finding 1: ([\w-]+)")


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(PAGE.read_text())


VERSIONS = [code for language, code in blocks() if language == "python"]


@pytest.mark.parametrize("number", range(len(VERSIONS)))
def test_a_version_remembers(number: int, engine_of: Callable[[str], Engine]) -> None:
    module = types.ModuleType("memory")
    exec(compile(VERSIONS[number], "memory.py", "exec"), vars(module))
    store = module.make_store(engine_of("redis").endpoint)
    session = uuid.uuid4().hex
    store.append(session, [Message("user", "question"), Message("assistant", "answer")])
    store.append(session, [Message("user", "another")])
    assert [item["content"] for item in store.history(session)] == ["question", "answer", "another"]
    store.redis.delete(f"memory:{session}")
    store.redis.close()


def test_every_finding_of_the_page_is_followed_by_a_fix() -> None:
    kinds = "".join(
        "V" if language == "python" else "F" if FINDING.search(text) else "" for language, text in blocks()
    )
    assert kinds == "VFVFVFV"


@pytest.mark.skipif(
    "RECOLLECT_FULL_TUTORIAL" not in os.environ, reason="set RECOLLECT_FULL_TUTORIAL=1: minutes"
)
def test_the_commands_say_what_the_page_says(tmp_path: Path) -> None:
    shown = blocks()
    for number, (language, text) in enumerate(shown):
        if language == "python":
            (tmp_path / "memory.py").write_text(text)
        elif text.startswith("recollect verify"):
            following = shown[number + 1][1] if number + 1 < len(shown) else ""
            expected = FINDING.search(following)
            command = [sys.executable, "-m", *shlex.split(text)]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == (1 if expected else 0), f"{text}\n{done.stdout}{done.stderr}"
            if expected:
                assert f"Finding 1: {expected.group(1)}" in done.stdout
