"""How often a service that answers too early is caught, and how often an honest one is accused.

Usage: python bench/service.py [--times 20] [--only WORD]

Planted services and their correct twins (tests/service/planted.py, and a FastAPI application under
`uvicorn --workers 4`), each struck so many times right after an answer: killed, or without power. Written to
bench/results/service.json; with --only, the rows of the others stay.
"""

import argparse
import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from recollect.verify.suite.service import Service

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "service.json"
PLANTED = [sys.executable, "-S", str(ROOT / "tests" / "service" / "planted.py"), "{port}"]
UVICORN = [sys.executable, "-m", "uvicorn", "service_app:app", "--app-dir", str(Path(__file__).parent)]
UVICORN += ["--port", "{port}", "--workers", "4", "--log-level", "warning"]
OF_PLANTED = {"health": "/ready", "data_env": "NOTES_FOLDER"}

CASES: dict[str, tuple[list[str], dict[str, Any], str, bool]] = {
    "answers, writes 5 ms later; killed": (PLANTED, {**OF_PLANTED, "env": {"MODE": "early"}}, "kill", False),
    "writes and syncs, answers; killed": (PLANTED, OF_PLANTED, "kill", True),
    "writes, answers, syncs 5 ms later; power loss": (
        PLANTED,
        {**OF_PLANTED, "env": {"MODE": "unsynced"}},
        "power",
        False,
    ),
    "writes and syncs, answers; power loss": (PLANTED, OF_PLANTED, "power", True),
    "uvicorn --workers 4, syncs after the answer; power loss": (
        UVICORN,
        {"env": {"SYNC": "0"}},
        "power",
        False,
    ),
    "uvicorn --workers 4, syncs before the answer; power loss": (
        UVICORN,
        {"env": {"SYNC": "1"}},
        "power",
        True,
    ),
}


def kept(service: Service, command: list[str], how: str, note: str) -> bool:
    path, body = ("/notes", json.dumps(note).encode()) if command is PLANTED else (f"/notes/{note}", b"")
    strike = service.kill_after_response if how == "kill" else service.power_loss_after_response
    request = urllib.request.Request(f"{service.base_url}{path}", data=body, method="POST")
    with strike("POST", path):
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    service.restart()
    with urllib.request.urlopen(f"{service.base_url}/notes", timeout=60) as answer:
        return note in json.load(answer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    times: int = asked.times
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    chosen = {name: case for name, case in CASES.items() if asked.only in name}
    for name, (command, options, how, honest) in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            service = Service(command, Path(folder), disk=how == "power", **options)
            try:
                service.start()
                lost = sum(not kept(service, command, how, f"note-{number}") for number in range(times))
            finally:
                service.close()
        rows[name] = {"lost": lost, "of": times, "honest": honest}
        print(f"{name}: lost in {lost} of {times}", flush=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")
    wrong = [name for name in chosen if rows[name]["lost"] != (0 if rows[name]["honest"] else times)]
    sys.exit(f"not as they should be: {'; '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
