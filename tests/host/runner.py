"""A runner to be killed: it starts engines, says which processes and folders are its own, and waits to be ended."""

from __future__ import annotations

import json
import sys
import time

from recollect.verify import engines
from recollect.verify.host import folder, processes


def main() -> None:
    started = []
    for spec in sys.argv[1].split(","):
        name, _, provider = spec.partition("/")
        engine = engines.create(name, provider=provider or None)
        engine.start()
        started.append(engine)
    told = {
        "folder": str(folder.current()),
        "warden": processes.warden_pid(),
        "run": folder.run_marker().name,
    }
    print(json.dumps(told), flush=True)
    while True:  # a signal that came just before `signal.pause` would be waited for
        time.sleep(0.05)


if __name__ == "__main__":
    main()
