"""The kernel forgets what it could not sync, and whoever opens the file next still reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from recollect import Message, OutcomeUnknown
from recollect.sync import open_store
from recollect.verify.disk import Model, Recorder
from recollect.verify.disk.image import rewrite, scan
from recollect.verify.disk.recorder import Faults

LONG = "while the disk fails " * 1_000
"""More than a page of the kernel's: a later sync takes everything along that stands on the same page."""

WRITER = """
import sys
from recollect import Message
from recollect.sync import open_store

store = open_store(sys.argv[1], durability="fsynced")
for line in sys.stdin:
    try:
        store.append("s", [Message("user", line.strip())])
        print("stored", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


class Writer:
    """A process that appends what it is told, and is killed in the end."""

    def __init__(self, url: str, recorder: Recorder) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url],
            env={**os.environ, **recorder.env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def append(self, text: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_what_is_fsynced_after_a_restart_is_not_behind_a_gap(tmp_path: Path) -> None:
    """Opening the store moves the log into the file, so that nothing new stands behind what was never synced."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with Recorder(tmp_path) as recorder:
        first = Writer(url, recorder)
        assert first.append("before") == "stored"
        recorder.faults(Faults.fsync_error())
        assert first.append(LONG) == OutcomeUnknown.__name__
        recorder.faults(Faults())
        first.kill()
        second = Writer(url, recorder)
        assert second.append("after the restart") == "stored"
        second.kill()
        durable = Model(recorder.base).replay(recorder.read()).durable()
        rewrite(tmp_path, scan(tmp_path).image, durable, owner=(os.getuid(), os.getgid()))
    with open_store(url) as store:
        found = [item.message.text for item in store.history("s") if isinstance(item.message, Message)]
    assert [text for text in found if text != LONG.strip()] == ["before", "after the restart"]
