"""Our stores, set up so that an acknowledgement waits for the replica."""

import asyncio

import asyncpg

from recollect.opening import Opening, open_store
from recollect.verify.engines.endpoint import Endpoint


def redis(endpoint: Endpoint) -> Opening:
    """A replica that has taken over has nobody to wait for."""
    promoted = endpoint.url in endpoint.replicas
    return open_store(endpoint.url, replicas=0 if promoted else 1)


class Postgres:
    """With a synchronous standby. It is set on the primary when its replica is there, so the replica itself has no such
    setting, and can write once it has taken over."""

    @staticmethod
    async def prepare(endpoint: Endpoint) -> None:
        connection = await asyncpg.connect(endpoint.url)
        try:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await connection.execute("SELECT pg_reload_conf()")
            while await connection.fetchval("SHOW synchronous_standby_names") != "*":
                await asyncio.sleep(0.005)
        finally:
            await connection.close()

    @staticmethod
    def factory(endpoint: Endpoint) -> Opening:
        return open_store(endpoint.url)
