"""A bot with a page: it answers at once, and a background thread writes what was said a moment later."""

import json
import os
import queue
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE = Path(os.environ.get("DATA_DIR", ".")) / "said.jsonl"
EVERY_S = 60.0
PAGE = Path(__file__).with_name("page.html").read_bytes()

said: list[str] = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
waiting: queue.Queue[str] = queue.Queue()


def flush_now_and_then() -> None:
    while True:
        time.sleep(EVERY_S)  # one write for many messages: faster, until the process ends
        with FILE.open("a") as file:
            while not waiting.empty():
                file.write(json.dumps(waiting.get()) + "\n")


def reply(text: str) -> str:
    if not text.endswith("?"):
        said.append(text)
        waiting.put(text)
        return "Nice to meet you!"
    names = [found[1] for one in said if (found := re.search(r"name is ([\w ]+)", one))]
    return f"Your name is {names[-1]}." if names else "You have not told me."


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer("text/html; charset=utf-8", PAGE)

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer("application/json", json.dumps(reply(text)).encode())

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    threading.Thread(target=flush_now_and_then, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
