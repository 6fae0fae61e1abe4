"""The chat service is killed without warning between and during answers, and started again on its data.

Whatever was answered with 200 is in the history afterwards, once; a turn that was not answered is sent again.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from pathlib import Path

import httpx
from tools.attack.assault import Assault

from recollect.verify.suite.service import Service

TIMES = 50
USER = "somebody"


def attack(assault: Assault) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        place = Path(folder)
        memory = f"sqlite:///{place / 'memory.db'}"
        command = [
            sys.executable,
            "-m",
            "recollect",
            "chat",
            "--memory",
            memory,
            "--index",
            "none",
            "--port",
            "{port}",
        ]
        service = Service([*command, "--allow-ephemeral"], place, start_timeout_s=60.0)
        said: list[str] = []
        with contextlib.closing(service):
            while assault.counts["kills"] < (assault.limit or TIMES) and assault.goes_on():
                service.start()
                _say(assault, service, said)
                _check(assault, service, said)
                service.kill()
                assault.count("kills")


def _say(assault: Assault, service: Service, said: list[str]) -> None:
    """Three turns; the last one while the service is killed, and again once it is back."""
    for turn in range(3):
        text = f"message {len(said)}-{assault.rng.random()}"
        body = {"user": USER, "message": text, "turn": text}
        if turn == 2:
            killer = threading.Timer(assault.rng.uniform(0, 0.02), service.kill)
            killer.start()
        try:
            answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=30)
        except httpx.HTTPError:
            answer = None
        if turn == 2:
            killer.join()
            service.start()
        if answer is None:
            answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=30)
        if assault.expect(
            answer.status_code == 200, f"answered with {answer.status_code}: {answer.text[:200]}"
        ):
            said.append(text)
            assault.count("acknowledged turns")


def _check(assault: Assault, service: Service, said: list[str]) -> None:
    found = httpx.get(f"{service.direct_url}/history", params={"user": USER}, timeout=30).text
    for text in said[-6:]:
        assault.expect(found.count(text) >= 1, f"{text!r} was acknowledged and is gone")
