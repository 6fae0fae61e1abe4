"""The examples for agent frameworks, run as their READMEs say, each line a process of its own, without a network."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from recollect.verify.engines import Engine

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _run(example: str, *arguments: str, code: int = 0) -> list[str]:
    """The lines it prints."""
    folder, _, program = example.partition("/")
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, program, *arguments],
        cwd=EXAMPLES / folder,
        capture_output=True,
        text=True,
        timeout=300,  # the first process in a new environment compiles a framework
        env=quiet,
    )
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_an_assistant_of_the_agents_sdk_remembers(tmp_path: Path) -> None:
    database = str(tmp_path / "assistant.db")
    assert _run("agents-assistant/assistant.py", "What is my name?", database) == ["You have not told me."]
    assert _run("agents-assistant/assistant.py", "My name is Li.", database) == ["Hello, Li!"]
    assert _run("agents-assistant/assistant.py", "What is my name?", database) == ["Your name is Li."]


def test_a_langgraph_agent_goes_on_where_it_was_killed(engine_of: Callable[[str], Engine]) -> None:
    url = engine_of("postgres").endpoint.url
    thread = f"trip-{uuid.uuid4()}"
    killed = _run("langgraph-travel/travel.py", url, thread, "--die-in", "hotel", code=-signal.SIGKILL)
    assert killed == ["1. flight: booked", "2. hotel: …"]
    assert _run("langgraph-travel/travel.py", url, thread) == [
        "going on after flight",
        "2. hotel: booked",
        "3. car: booked",
        "the trip: flight, hotel, car",
    ]


def test_an_adk_agent_remembers_on_redis(engine_of: Callable[[str], Engine]) -> None:
    url = engine_of("redis").endpoint.url
    user = f"li-{uuid.uuid4()}"
    said = [
        _run("adk-helpdesk/helpdesk.py", url, user, session, text)
        for session, text in (
            ("monday", "The printer is on fire."),
            ("tuesday", "Hello again."),
            ("monday", "What was it?"),
        )
    ]
    assert said == [
        ["This is call 1. You first said here: The printer is on fire."],
        ["This is call 2. You first said here: Hello again."],
        ["This is call 3. You first said here: The printer is on fire."],
    ]
