"""Appends one message at a time, without a type: only the name of the parameter says that it is one."""

import json

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.appended_by_rewriting import Untyped
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("redis", "aof-always", "none", "turns", {"form": "mappings"}),
    Cell("redis", "aof-always", "restart", "contents", {"form": "mappings"}),
)


class OneByOne(Untyped):
    def append(self, session, message):  # type: ignore[no-untyped-def]
        self.client.rpush(session, json.dumps([message]))


def factory(endpoint: Endpoint) -> OneByOne:
    return OneByOne(endpoint)
