"""Runs command lines, each in a fork of its own, and says what they printed: importing the kit once is enough.

python -m tests.secret.every_command < argument lists, as JSON > outcomes, as JSON
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

TIMEOUT_S = 60.0
IMPORTED_LATER = {
    "doctor": ("doctor.postgres", "doctor.redis"),
    "audit": ("audit.postgres", "audit.redis"),
    "watch": ("audit.postgres", "audit.redis", "stores.postgres.store", "stores.redis.store"),
    "migrate": ("stores.postgres", "stores.postgres.migrations"),
    "chat": ("stores.postgres", "chat.app"),
}


def run(arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _become(arguments, output.fileno(), folder)
        code = _wait(child)
        output.seek(0)
        files = [file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()]
        return {
            "arguments": arguments,
            "code": code,
            "said": output.read().decode("utf-8", "replace"),
            "written": b"\n".join(files).decode("utf-8", "replace"),
        }


def _become(arguments: list[str], output: int, folder: str) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    sys.argv = ["recollect", *arguments]
    code = 99
    try:
        from recollect.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _wait(child: int) -> int | None:
    """Its exit code; None if it had to be ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    lines = json.load(sys.stdin)
    from recollect import cli

    for name in {line[0] for line in lines}:  # imported here, once, and what they import when they run
        cli.build([name])
        for module in IMPORTED_LATER.get(name, ()):
            importlib.import_module(f"recollect.{module}")
    gc.freeze()  # the collector of each fork would copy what was imported
    json.dump([run(line) for line in lines], sys.stdout)


if __name__ == "__main__":
    main()
