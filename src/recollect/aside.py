"""Work on another thread; on this one, where no other can begin any more.

When the main thread has ended, or `atexit` runs its functions, Python's executors take no more work. A program's other
threads may still use a store then, and it has to be closed. Whoever shares the loop waits meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Value = TypeVar("Value")
REFUSED = "cannot schedule new futures"


def aside(work: Callable[..., Value], *given: Any, executor: Executor | None = None) -> asyncio.Future[Value]:
    """The result of ``work(*given)``, to be awaited. The executor must not have been shut down by its owner."""
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(executor, work, *given)
    except RuntimeError as error:
        if REFUSED not in str(error):  # such as too many threads: then the executor may still do the work
            raise
        done: asyncio.Future[Value] = loop.create_future()
    try:
        done.set_result(work(*given))
    except Exception as error:
        done.set_exception(error)
    return done
