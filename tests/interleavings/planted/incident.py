"""A store with nothing wrong in it, on whichever redis-py is found first.

redis-py 4.5.1 gives the reply of a cancelled caller to the next one on the same connection (redis/redis-py#2624 and
#2665, mended in 4.5.3 and 4.5.5): the incident of 20 March 2023, in which people saw the titles of other people's
conversations. The store below is the whole of what one needs to write to have it.
"""

from __future__ import annotations

from tests.interleavings.planted.redis_tasks import OneCommand


class Store(OneCommand):
    """One command each, through the driver's own pool."""

    async def close(self) -> None:
        await getattr(self.client, "aclose", self.client.close)()
