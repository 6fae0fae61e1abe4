"""A list in Redis whose store takes five seconds to open."""

import time

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.redis_list import RedisList


def factory(endpoint: Endpoint) -> RedisList:
    time.sleep(5.0)
    return RedisList(endpoint)
