"""A small service with a memory in a file, for the tests of the fixture. `MODE` chooses its honesty.

`honest` fsyncs before it answers; `early` answers 200 and writes `WINDOW_MS` later; `hangs` never gets healthy.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE = Path(os.environ["NOTES_FOLDER"]) / "notes.jsonl"
MODE = os.environ.get("MODE", "honest")
WINDOW_S = float(os.environ.get("WINDOW_MS", "5")) / 1000
PORT = int(sys.argv[1])


def write(note: str) -> None:
    with FILE.open("a") as file:
        file.write(json.dumps(note) + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_later(note: str) -> None:
    time.sleep(WINDOW_S)
    write(note)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ready":
            self._answer(503 if MODE == "hangs" else 200, {"pid": os.getpid()})
            return
        notes = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
        self._answer(200, notes)

    def do_POST(self) -> None:
        note = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if MODE != "early":
            write(note)
        if self.path == "/chunked":
            self._answer_in_chunks(note)
        else:
            self._answer(200, {"stored": note})
        if MODE == "early":  # the window begins when the answer is out
            threading.Thread(target=write_later, args=(note,)).start()

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_in_chunks(self, note: str) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in (b"stored ", note.encode(), b"!"):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *arguments: object) -> None:
        return


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
