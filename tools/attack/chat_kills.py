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
BETWEEN_EVERY = 3
"""Every third kill comes right after an answer, the others at a random moment of one."""
USER = "somebody"
HISTORY_MAX = 500
"""What the service gives at most."""


def attack(assault: Assault) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        service = service_in(Path(folder))
        said: list[str] = []
        with contextlib.closing(service.start()):
            while assault.counts["kills"] < (assault.limit or TIMES) and assault.goes_on():
                usual_s = 0.0
                for _ in range(2):  # the first turn of a process takes longer
                    started = time.monotonic()
                    _say(assault, service, said, _new_text(assault))
                    usual_s = time.monotonic() - started
                _kill_while_answering(assault, service, said, usual_s)
                _check(assault, service, said)


def _new_text(assault: Assault) -> str:
    return f"message {assault.rng.random()}"


def _kill_while_answering(assault: Assault, service: Service, said: list[str], usual_s: float) -> None:
    """One more turn, a kill, a start; a turn that was not answered is sent again."""
    text = _new_text(assault)
    delay_s = assault.rng.uniform(0, 1.2 * usual_s)
    assault.count("kills")
    if assault.counts["kills"] % BETWEEN_EVERY == 0:
        _say(assault, service, said, text)
        service.kill()
        service.start()
        return
    killer = threading.Timer(delay_s, service.kill)
    killer.start()
    try:
        _say(assault, service, said, text)
        answered = True
    except httpx.HTTPError:
        answered = False
    killer.join()
    service.start()
    if not answered:
        assault.count("unanswered turns sent again")
        _say(assault, service, said, text)


def _say(assault: Assault, service: Service, said: list[str], text: str) -> None:
    body = {"user": USER, "message": text, "turn": text}
    answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=30)
    told = f"answered with {answer.status_code}: {answer.text[:200]}"
    if assault.expect(answer.status_code == 200, told):
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
