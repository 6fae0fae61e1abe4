"""Runs a program under a given build of the recorder and prints what kinds of calls it saw. Used by `tools.dist`."""

import subprocess
import sys
import tempfile
from pathlib import Path

from recollect.verify.disk.recorder import Recorder


def main() -> None:
    shim, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name, Recorder(Path(name)) as recorder:
        environment = {**recorder.env(), "LD_PRELOAD": shim}
        subprocess.run([program, f"{name}/file"], env=environment, check=True)
        print(*sorted({record.op.name for record in recorder.read()}))


if __name__ == "__main__":
    main()
