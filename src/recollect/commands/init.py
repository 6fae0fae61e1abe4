"""`recollect init`: writes a test file for your store, and a CI job that runs it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes
from recollect.commands.console import echo
from recollect.verify.matrix.selection import CORE_POLICIES
from recollect.verify.running.faults import FAULTS
from recollect.verify.target.registry import BUILT_IN
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import resolve

FIRST_FAULTS = ("kill-engine", "power-loss", "restart", "concurrent-writers", "kill-app", "lost-ack")
"""The faults of a first suite: what happens to every deployment sooner or later."""


class Ci(StrEnum):
    github = "github"
    gitlab = "gitlab"
    none = "none"


def init(
    target: Annotated[str, typer.Argument(help="Your store's factory: package.module:factory.")],
    engine: Annotated[
        str, typer.Option(help="redis, postgres, sqlite or chroma; redis@7 for a version.")
    ] = "redis",
    ci: Annotated[
        Ci | None, typer.Option(help="Where the tests run; GitLab if there is a .gitlab-ci.yml.")
    ] = None,
    tests: Annotated[Path, typer.Option(help="Folder of the tests.")] = Path("tests"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write tests/test_memory.py, which puts your store through real faults, and a CI job for it.

    recollect init shop.memory:make_store --engine redis

    Without --force nothing is overwritten: if one of the files exists, nothing is written at all.
    """
    family = engine.partition("@")[0].replace("valkey", "redis")
    if family not in CORE_POLICIES:
        raise typer.BadParameter(f"--engine {engine!r}: one of {', '.join(CORE_POLICIES)}")
    _check(target)
    where = ci or (Ci.gitlab if Path(".gitlab-ci.yml").exists() else Ci.github)
    files = {tests / "test_memory.py": _test_file(target, engine, family)}
    files |= _job(where, tests)
    present = [str(path) for path in files if path.exists()]
    if present and not force:
        echo(f"{', '.join(present)}: already there; nothing was written. --force overwrites.", err=True)
        raise typer.Exit(exit_codes.USAGE)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        echo(f"wrote {path}")
    _next_steps(where, tests)


def _check(target: str) -> None:
    """Better to find out now than in CI that a name cannot be imported."""
    try:
        if target in BUILT_IN:
            raise BadTarget(
                f"target {target!r}: our own stores have their suite; name yours, package.module:factory"
            )
        resolve(target)
    except BadTarget as error:
        echo(str(error), err=True)
        raise typer.Exit(exit_codes.USAGE) from None


def _test_file(target: str, engine: str, family: str) -> str:
    faults = [name for name in FIRST_FAULTS if name in FAULTS]
    policies = CORE_POLICIES[family][:2]
    return f'''"""Is what the assistant was told still there tomorrow? On a real engine, with real faults."""

from recollect.pytest_plugin import MemoryStoreSuite


class TestMemory(MemoryStoreSuite):
    factory = "{target}"
    engine = "{engine}"
    policy = {_tuple(policies)}  # as you run it in production
    fault = {_tuple(faults)}
'''


def _tuple(names: list[str] | tuple[str, ...]) -> str:
    quoted = [f'"{name}"' for name in names]
    return f"({', '.join(quoted)})" if len(quoted) > 1 else quoted[0]


def _install() -> str:
    """How this project is installed, as far as its files tell."""
    parts = ["-r requirements.txt"] if Path("requirements.txt").exists() else []
    parts += ["-e ."] if Path("pyproject.toml").exists() or Path("setup.py").exists() else []
    return " ".join(["pip install", *parts, "pytest 'recollect[verify]'"])


def _job(where: Ci, tests: Path) -> dict[Path, str]:
    if where is Ci.github:
        return {Path(".github/workflows/memory.yml"): GITHUB.format(install=_install(), tests=tests)}
    if where is Ci.gitlab:
        return {Path(".gitlab/memory.yml"): GITLAB.format(install=_install(), tests=tests)}
    return {}


GITHUB = """\
# Puts the memory store through real faults on real engines; no Docker, no services.
name: memory
on: [push, pull_request]
jobs:
  memory:
    runs-on: ubuntu-latest
    timeout-minutes: 10
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.12"}}
      - run: {install}
      - run: pytest {tests} -m recollect --recollect-out memory-runs --junitxml memory.xml
      - uses: actions/upload-artifact@v4
        if: failure()
        with:
          name: memory-runs
          path: |
            memory-runs
            memory.xml
"""

GITLAB = """\
# Puts the memory store through real faults on real engines; no Docker, no services.
memory:
  image: python:3.12
  timeout: 10 minutes
  script:
    - {install}
    - pytest {tests} -m recollect --recollect-out memory-runs --junitxml memory.xml
  artifacts:
    when: on_failure
    paths: [memory-runs]
    reports:
      junit: memory.xml
"""


def _next_steps(where: Ci, tests: Path) -> None:
    if where is Ci.gitlab:
        echo("add to .gitlab-ci.yml:  include: [{local: .gitlab/memory.yml}]")
    echo(f"next: pytest {tests / 'test_memory.py'}")
