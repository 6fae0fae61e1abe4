"""No command repeats a password that it was given, wherever it was put: every command, every parameter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from recollect import cli, exit_codes
from tests.secret.canary import ADDRESSES, ENCODED, PASSWORDS, PLACES, PLAIN, RAW, traces

PROJECT = Path(__file__).parent.parent.parent
FEW = (PLACES[0].format(RAW), PLACES[3].format(ENCODED), PLACES[8].format(RAW), PLACES[10].format(PLAIN))
"""For parameters that no address belongs in; the others get all of them."""
ALONG: dict[str, dict[str, str]] = {
    "chat": {"--memory": PLACES[2].format(PASSWORDS[0])},
    "verify": {"--fault": "no-such-fault"},
    "explore": {"target": "redis", "--policy": "no-such-policy"},
    "init": {"target": "no.such.module:factory"},
    "recall-eval": {"cases": "no-such-file.yaml"},
    "audit": {"url": "sqlite:///no-such-folder/memory.db"},
    "watch": {"url": "sqlite:///no-such-folder/memory.db", "--rounds": "1", "--timeout": "0.2"},
    "export": {"url": "sqlite:///no-such-folder/memory.db"},
    "import": {"url": "sqlite:///no-such-folder/memory.db", "file": "pyproject.toml"},
    "erase": {"url": "sqlite:///no-such-folder/memory.db", "session": "s"},
}
"""What is given with it, so that the command ends by itself whatever the parameter is."""


def command(name: str) -> click.Command:
    group: Any = typer.main.get_command(cli.build([name]))
    found: click.Command = group.commands[name]
    return found


def lines_of(name: str) -> list[list[str]]:
    """The command with each of the addresses in each parameter that takes a text, right or wrong."""
    lines = []
    for parameter in command(name).params:
        if getattr(parameter, "is_flag", False) or parameter.name == "help":
            continue
        told = getattr(parameter, "help", None) or ""
        for address in ADDRESSES if "://" in told or "address" in told else FEW:
            words = {**ALONG.get(name, {}), parameter.opts[-1]: address}
            options = [
                part for word, value in words.items() if word.startswith("-") for part in (word, value)
            ]
            plain = [value for word, value in words.items() if not word.startswith("-")]
            lines.append([name, *options, "--", *plain] if plain else [name, *options])
    return lines


def outcomes(lines: list[list[str]], **environment: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.secret.every_command"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "COLUMNS": "100", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_command_repeats_a_password(name: str) -> None:
    lines = lines_of(name)
    seen = outcomes(lines)
    assert len(seen) == len(lines)
    for one in seen:
        assert one["code"] is not None, f"never ended: {one['arguments']}"
        assert one["code"] != exit_codes.INTERNAL, one
        assert not traces(one["said"]), one
        assert not traces(one["written"]), one


def test_addresses_of_the_environment_are_listed_without_their_passwords() -> None:
    for place, variable in ((PLACES[0], "RECOLLECT_REDIS_URL"), (PLACES[2], "RECOLLECT_POSTGRES_URL")):
        for password in PASSWORDS:
            for one in outcomes([["engines"], ["engines", "--json"]], **{variable: place.format(password)}):
                assert not traces(one["said"]), one
                assert password == RAW or "127.0.0.1" in one["said"], one
