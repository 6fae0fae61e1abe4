"""Our store in processes of their own, with opentelemetry-api and without it: what does its presence cost?

Nobody sets up a provider in either, so nothing should be slower. Drivers look for OpenTelemetry too, when they are
imported; so whether there is one has to be settled before anything else, and a process has only one answer.
"""

import asyncio
import importlib
import importlib.abc
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

BENCH = Path(__file__).parent.parent
NAMESPACE = "opentelemetry"

if __name__ == "__main__":

    class _Refused(importlib.abc.MetaPathFinder):
        """As in an environment where it is not installed."""

        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname.partition(".")[0] == NAMESPACE:
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

    if sys.argv[1] == "api":
        for name in ("trace", "metrics"):
            importlib.import_module(f"{NAMESPACE}.{name}")
    else:
        sys.meta_path.insert(0, _Refused())

from contenders.contender import Contender, Place  # noqa: E402
from contenders.ours import Ours  # noqa: E402
from recollect import Store, open_store  # noqa: E402


class OursApart(Contender):
    """A process that is asked for one slice at a time, and measures it itself."""

    api: ClassVar[str]
    append_clients = frozenset({1})
    reads_large = False
    _process: Process

    async def open(self) -> None:
        folder = self.place.folder / f"{self.api}-apart"
        folder.mkdir()
        command = [sys.executable, "-m", "contenders.apart", self.api, self.place.engine, self.place.url]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        self._process = await asyncio.create_subprocess_exec(
            *command, str(folder), cwd=BENCH, env=environment, stdin=PIPE, stdout=PIPE
        )
        self.note = await self._answer()

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the end of its input is the end of it
        await self._process.wait()

    async def fill(self, session: str, count: int) -> None:
        await self._ask("fill", session, count)

    async def append_rate(self, sessions: Sequence[str], duration_s: float) -> float:
        return float(await self._ask("append_rate", list(sessions), duration_s))

    async def read_rate(self, session: str, duration_s: float) -> float:
        return float(await self._ask("read_rate", session, duration_s))

    async def _ask(self, method: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([method, *arguments])}\n".encode())
        return await self._answer()

    async def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process ended with {await self._process.wait()}")
        return json.loads(line)


class OursWithoutApi(OursApart):
    name = "recollect, without opentelemetry-api"
    api = "none"


class OursWithApi(OursApart):
    name = "recollect, with opentelemetry-api"
    api = "api"


class _Here(Ours):
    """As a user opens it, who has no provider."""

    async def _opened(self, url: str) -> Store:
        return await open_store(url)


async def serve(place: Place) -> None:
    store = _Here(place)
    await store.open()
    assert (NAMESPACE in sys.modules) == (sys.argv[1] == "api")
    print(json.dumps(store.note), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        method, *arguments = json.loads(line)
        print(json.dumps(await getattr(store, method)(*arguments)), flush=True)
    await store.close()


if __name__ == "__main__":
    logging.getLogger("recollect").setLevel(logging.ERROR)
    asyncio.run(serve(Place(sys.argv[2], sys.argv[3], Path(sys.argv[4]))))
