"""The chat service is killed without warning between and during answers, and started again on its data.

Whatever was answered with 200 is in the history afterwards, once and with one reply; a turn that was not answered is
sent again.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from tools.attack.assault import Assault
from tools.attack.chat_service import service_in

from recollect.verify.suite.service import Service

TIMES = 50
USER = "somebody"
HISTORY_MAX = 500
"""What the service gives at most."""


def attack(assault: Assault) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        service = service_in(Path(folder))
        said: list[str] = []
        with contextlib.closing(service):
            while assault.counts["kills"] < (assault.limit or TIMES) and assault.goes_on():
                service.start()
                _say(assault, service, said)
                _check(assault, service, said)
                service.kill()
                assault.count("kills")
            service.start()
            _check(assault, service, said)


def _say(assault: Assault, service: Service, said: list[str]) -> None:
    """Three turns; the last one while the service is killed, and again once it is back."""
    usual_s = 0.0
    for turn in range(3):
        text = f"message {len(said)}-{assault.rng.random()}"
        body = {"user": USER, "message": text, "turn": text}
        started = time.monotonic()
        if turn == 2:
            killer = threading.Timer(assault.rng.uniform(0, 1.2 * usual_s), service.kill)
            killer.start()
        try:
            answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=30)
        except httpx.HTTPError:
            answer = None
        usual_s = time.monotonic() - started  # the first of a process takes longer
        if turn == 2:
            killer.join()
            service.start()
        if answer is None:
            assault.count("unanswered turns sent again")
            answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=30)
        if assault.expect(
            answer.status_code == 200, f"answered with {answer.status_code}: {answer.text[:200]}"
        ):
            said.append(text)
            assault.count("acknowledged turns")


def _check(assault: Assault, service: Service, said: list[str]) -> None:
    asked = {"user": USER, "last": str(HISTORY_MAX)}
    items = httpx.get(f"{service.direct_url}/history", params=asked, timeout=30).json()
    texts = Counter(item["text"] for item in items if item["role"] == "user")
    replies = Counter(item["turn"] for item in items if item["role"] == "assistant")
    for text in said[-HISTORY_MAX // 2 :]:
        assault.expect(texts[text] >= 1, f"{text!r} was acknowledged and is gone")
        assault.expect(texts[text] <= 1, f"{text!r} is there {texts[text]} times")
        assault.expect(replies[text] == 1, f"{text!r} has {replies[text]} replies")
