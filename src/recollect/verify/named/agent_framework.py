"""The history of Microsoft's Agent Framework on Redis: what a run added is saved when it ends."""

from typing import Any

from agent_framework_redis import RedisHistoryProvider

from recollect.verify.engines.endpoint import Endpoint


def redis(endpoint: Endpoint) -> Any:
    return RedisHistoryProvider(redis_url=endpoint.url, application_id="recollect")
