"""Engines in containers of local images."""

from __future__ import annotations

from recollect.verify.providers.build import Build, Gap

NAME = "docker"


def builds(engine: str) -> list[Build]:
    return []


def gaps(engine: str, found: list[Build]) -> list[Gap]:
    return []
