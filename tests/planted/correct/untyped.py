"""Appends with one RPUSH whatever `json.dumps` takes, and does not say what that is: not our messages, but mappings."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.appended_by_rewriting import Untyped
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("redis", "aof-always", "none", "contents", {"form": "mappings"}),
    Cell("redis", "aof-always", "kill-engine", "turns", {"form": "mappings"}),
)


def factory(endpoint: Endpoint) -> Untyped:
    return Untyped(endpoint)
