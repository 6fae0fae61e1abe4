"""How much the disk recorder slows an engine down.

With and without the recorder in turns, in one run, so that a noisy machine is noisy to both. The ratio of the
medians is the result; a round's own figures are printed for whoever doubts it.

    python bench/recorder.py [--rounds 7] [--seconds 1.0]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.disk.probes import probe

from recollect.verify.disk import Recorder
from recollect.verify.engines import Engine, EngineOptions, create
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.wire.resp import Connection

ALLOWED = {"redis aof-everysec": 0.10, "postgres@18 default": 0.40, "sqlite wal-full": 0.40}
_PIPELINE = 16


def redis_writer(engine: RedisEngine) -> Callable[[], int]:
    """Pipelined, so that the server and not this process is what is measured."""
    connection = Connection(engine.address)
    command = b"*3\r\n$5\r\nRPUSH\r\n$6\r\nmemory\r\n$100\r\n" + b"x" * 100 + b"\r\n"

    def write() -> int:
        connection._socket.sendall(command * _PIPELINE)
        for _ in range(_PIPELINE):
            connection._reply()
        return _PIPELINE

    return write


SQLITE_WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL"); connection.execute("PRAGMA synchronous = FULL")
connection.execute("CREATE TABLE IF NOT EXISTS memory (number INTEGER PRIMARY KEY, content TEXT)")
end, count = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    connection.execute("INSERT INTO memory (content) VALUES (?)", ("x" * 100,)); count += 1
print(count)
"""


def rate_of_sqlite(recorded: bool, seconds: float) -> float:
    """In a process of its own, without a socket in between: the hardest case for the recorder."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        env = dict(os.environ)
        if recorded:
            env |= stack.enter_context(Recorder(folder)).env()
        command = [sys.executable, "-I", "-S", "-c", SQLITE_WRITER, str(folder / "m.db"), str(seconds)]
        return (
            int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout) / seconds
        )


def rate(name: str, recorded: bool, seconds: float) -> float:
    spec, policy = name.split()
    if spec == "sqlite":
        return rate_of_sqlite(recorded, seconds)
    with ExitStack() as stack:
        engine: Engine = create(spec, policy, options=EngineOptions())
        stack.callback(engine.close)
        if isinstance(engine, PostgresEngine):
            engine.prepare()
        assert engine.data is not None
        engine.data.mkdir(parents=True, exist_ok=True)
        engine.start(stack.enter_context(Recorder(engine.data)).env() if recorded else {})
        first = probe(engine)
        first.prepare()
        stack.callback(first.close)
        write = redis_writer(engine) if isinstance(engine, RedisEngine) else None
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            if write is not None:
                count += write()
            else:
                first.write(count)
                count += 1
        return count / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", help="the cases whose name begins like this")
    arguments = parser.parse_args()
    failed = False
    for name, allowed in ALLOWED.items():
        if arguments.only and not name.startswith(arguments.only):
            continue
        plain: list[float] = []
        recorded: list[float] = []
        for turn in range(arguments.rounds):
            for which in ((False, True), (True, False))[turn % 2]:
                (recorded if which else plain).append(rate(name, which, arguments.seconds))
        overhead = 1 - statistics.median(recorded) / statistics.median(plain)
        pairs = [1 - after / before for before, after in zip(plain, recorded, strict=True)]
        verdict = "ok" if overhead <= allowed else "TOO SLOW"
        failed |= overhead > allowed
        print(
            f"{name:20} {statistics.median(plain):9.0f} → {statistics.median(recorded):9.0f} writes/s"
            f"  overhead {overhead:6.1%} (rounds {min(pairs):.1%} … {max(pairs):.1%},"
            f" at most {allowed:.0%}) {verdict}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
