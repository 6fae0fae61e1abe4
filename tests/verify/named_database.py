"""What an application of a released store wrote: `python -m tests.verify.named_database NAME URL`.

Apart, because some of the stores leave connections open.
"""

import asyncio
import sys
from pathlib import Path

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.pipe import Said
from recollect.verify.target.registry import named_targets
from recollect.verify.target.target import Target, prepare_of

SESSIONS = ("one", 'two\'s "own"', "three é")
MESSAGES = 6


def endpoint_at(name: str, url: str) -> Endpoint:
    engine = named_targets()[name].kind
    path = Path(url.removeprefix("sqlite:///")) if engine == "sqlite" else None
    return Endpoint(url, engine, engine, "", "custom", "url", path=path)


async def write(name: str, endpoint: Endpoint) -> None:
    target = Target(name, endpoint)
    if (prepare := prepare_of(name)) is not None:
        prepare(endpoint)
    await target.open()
    for number in range(MESSAGES):
        for place, session in enumerate(SESSIONS):
            await target.append(session, [Said(10 * number + place, f"message {number}", "")], None, None)
    await target.close()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], endpoint_at(*sys.argv[1:3])))
