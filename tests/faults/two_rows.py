"""A store without a fault: the messages of a turn are two statements of one transaction."""

import json
from collections.abc import Sequence

import asyncpg

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint


async def prepare(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute("CREATE TABLE said (n bigserial, session text, message text)")
    await connection.close()


class TwoRows:
    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                for message in messages:
                    raw = json.dumps({"role": message.role, "content": message.content})
                    await connection.execute(
                        "INSERT INTO said (session, message) VALUES ($1, $2)", session, raw
                    )
        finally:
            await connection.close()

    async def history(self, session: str) -> list[dict[str, str]]:
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch("SELECT message FROM said WHERE session = $1 ORDER BY n", session)
        finally:
            await connection.close()
        return [json.loads(row[0]) for row in rows]


def factory(endpoint: Endpoint) -> TwoRows:
    return TwoRows(endpoint)
