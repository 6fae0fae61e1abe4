"""Ids are made of the process's own and a counter, both of the module: right in every process that imports it."""

import itertools
import json
import uuid
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import connect

CELLS = (Cell("redis", "aof-always", "concurrent-writers", "append"),)

PROCESS = uuid.uuid4().hex
numbers = itertools.count()


class IdsOfTheProcess:
    """A message that has its id already is taken for a retry, and not stored again."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)
        self.store = self.client.register_script(
            "if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end"
        )

    def append_message(self, session: str, message: Any) -> None:
        keys = [f"bodies:{session}", f"ids:{session}"]
        self.store(keys, [f"{PROCESS}-{next(numbers)}", json.dumps(message)])

    def get_history(self, session: str) -> list[Any]:
        ids = self.client.lrange(f"ids:{session}", 0, -1)
        bodies = self.client.hmget(f"bodies:{session}", ids) if ids else []
        return [json.loads(body) for body in bodies]


def factory(endpoint: Endpoint) -> IdsOfTheProcess:
    return IdsOfTheProcess(endpoint)
