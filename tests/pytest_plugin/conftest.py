"""Projects as users have them, each with its own small test suite."""

import pytest

# Pytester forgets what an inner session imported; this way the kit is imported once for all of them.
import recollect.verify.suite.suite  # noqa: F401

MEMORY = '''
import json
import redis


class ListMemory:
    """A plain list in Redis; `expire_s` is the bug of the third incident article."""

    def __init__(self, url, expire_s=None):
        self.client = redis.Redis.from_url(url, retry=None)
        self.expire_s = expire_s

    def append_message(self, session, message):
        key = f"session:{session}:messages"
        with self.client.pipeline() as together:
            together.rpush(key, json.dumps(message))
            if self.expire_s:
                together.expire(key, self.expire_s)
            together.execute()

    def get_history(self, session, limit=100):
        return [json.loads(raw) for raw in self.client.lrange(f"session:{session}:messages", -limit, -1)]
'''

CONFTEST = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "lib"))
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose code only its conftest file knows how to find."""
    pytester.mkdir("lib")
    pytester.path.joinpath("lib", "shop_memory.py").write_text(MEMORY)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester
