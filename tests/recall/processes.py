"""Processes for the fault tests: writers and readers of a target, started warm, killed for real.

A process gets its orders through a pipe and answers on it; an acknowledgement counts when it has arrived here.
"""

import asyncio
import inspect
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from recollect import Message
from recollect.verify import recall_targets
from recollect.verify.target.workers import start_fork_server

CONTEXT = multiprocessing.get_context("forkserver")
PRELOAD = ("chromadb", "recollect.verify.recall_targets", "recollect.recall.rows_sqlite")


@dataclass(frozen=True)
class Endpoint:
    url: str
    path: Path
    settings: Mapping[str, str] = field(default_factory=dict)


def messages(prefix: str, first: int, count: int) -> list[Message]:
    """Messages whose ids tell what they are, so that every process can name them."""
    return [
        Message("user", f"{prefix} note {n} on w{n % 97} and v{n % 31}", id=f"{prefix}-{n}")
        for n in range(first, first + count)
    ]


async def _await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _serve(pipe: Connection, factory: Callable[[Any], Any], endpoint: Endpoint) -> None:
    target = await _await(factory(endpoint))
    loop = asyncio.get_running_loop()
    while True:
        order = await loop.run_in_executor(None, pipe.recv)
        try:
            if order[0] == "append":
                _, session, prefix, first, count = order
                await _await(target.append(session, messages(prefix, first, count)))
                answer: Any = first + count
            elif order[0] == "ids":
                listed, found = await _await(target.search(order[1]))
                answer = ({message.id for message in listed}, {message.id for message in found})
            elif order[0] == "method":
                answer = (await target.recall.search("s", "note", 5)).method
            elif order[0] == "ready":
                await target.recall.index_ready()
                answer = target.recall.rebuilds
            else:
                await _await(target.close())
                pipe.send("closed")
                return
        except Exception as error:
            answer = error if _travels(error) else RuntimeError(f"{type(error).__name__}: {error}")
        await loop.run_in_executor(None, pipe.send, answer)


def _travels(error: Exception) -> bool:
    return type(error).__module__.startswith("recollect.")


PATIENCE_S = 60.0
"""Nothing here is about the limit of a call, and a busy machine takes its time."""


def _run(pipe: Connection, factory: Callable[[Any], Any], endpoint: Endpoint) -> None:
    recall_targets.OPERATION_TIMEOUT_S = PATIENCE_S
    asyncio.run(_serve(pipe, factory, endpoint))


@dataclass
class Process:
    """A target in a process of its own."""

    factory: Callable[[Any], Any]
    endpoint: Endpoint
    pipe: Connection = field(init=False)
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        start_fork_server(PRELOAD)  # as the kit's own runs need it, which may come later in this process
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_run, args=(theirs, self.factory, self.endpoint), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, *order: Any) -> Any:
        self.send(*order)
        return self.answer()

    def send(self, *order: Any) -> None:
        self.pipe.send(order)

    def answer(self, timeout_s: float = 60.0) -> Any:
        assert self.pipe.poll(timeout_s), f"no answer within {timeout_s:g} s"
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def close(self) -> None:
        if self.process.is_alive():
            self.ask("close")
            self.process.join()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.is_alive():
            self.kill()
        self.pipe.close()
