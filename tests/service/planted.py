"""A small service with a memory in a file, for the tests of the fixture. `MODE` chooses its honesty.

`honest` fsyncs before it answers, and finishes its answers when it is told to end; `early` answers 200 and writes
`WINDOW_MS` later; `unsynced` writes, answers 200, and syncs `WINDOW_MS` later; `trusting` ignores errors of the disk;
`abrupt` drops its answers when it is told to end; `hangs` never gets healthy. With `WORKERS` it has several processes.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

FILE = Path(os.environ["NOTES_FOLDER"]) / "notes.jsonl"
MODE = os.environ.get("MODE", "honest")
WINDOW_S = float(os.environ.get("WINDOW_MS", "5")) / 1000
PORT = int(sys.argv[1])


def write(note: str) -> None:
    with FILE.open("a") as file:
        file.write(json.dumps(note) + "\n")
        file.flush()
        if MODE != "unsynced":
            os.fsync(file.fileno())


def write_later(note: str) -> None:
    time.sleep(WINDOW_S)
    write(note)


def sync_later() -> None:
    time.sleep(WINDOW_S)
    with FILE.open("a") as file:
        os.fsync(file.fileno())


def ask_engine(words: str) -> bytes:
    """One inline command of Redis, and its reply."""
    address = urlsplit(os.environ["ENGINE_URL"])
    with socket.create_connection((address.hostname, address.port), timeout=1) as connection:
        connection.sendall(words.encode() + b"\r\n")
        return connection.recv(4096)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ready":
            self._answer(503 if MODE == "hangs" else 200, {"pid": os.getpid()})
            return
        if self.path == "/time":
            self._answer(200, time.time())
            return
        notes = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
        self._answer(200, notes)

    def do_POST(self) -> None:
        note = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/engine":
            self._remember_in_engine(note)
            return
        if self.path == "/slow":
            self._answer_slowly(note)
            return
        if MODE != "early" and not self._written(note):
            return
        if self.path == "/chunked":
            self._answer_in_chunks(note)
        else:
            self._answer(200, {"stored": note, "pid": os.getpid()})
        if MODE == "early":  # the window begins when the answer is out
            threading.Thread(target=write_later, args=(note,)).start()
        if MODE == "unsynced":
            threading.Thread(target=sync_later).start()

    def _written(self, note: str) -> bool:
        try:
            write(note)
        except OSError as error:
            if MODE != "trusting":
                self._answer(507, {"error": error.strerror})
                return False
        return True

    def _remember_in_engine(self, note: str) -> None:
        try:
            reply = ask_engine(f"RPUSH notes {note}")
        except OSError as error:
            self._answer(503, {"error": str(error)})
            return
        self._answer(200 if reply.startswith(b":") else 503, {"reply": reply.decode()})

    def _answer_slowly(self, note: str) -> None:
        """In pieces, and it is stored when the last one is out, as a streaming model answers."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in (b"one ", b"word ", b"after ", b"another"):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            time.sleep(WINDOW_S)
        write(note)
        self.wfile.write(b"0\r\n\r\n")

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


class Server(ThreadingHTTPServer):
    daemon_threads = False  # answers that were begun are finished
    allow_reuse_port = True


def serve() -> None:
    server = Server(("127.0.0.1", PORT), Handler)
    if MODE != "abrupt":
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()


for _ in range(int(os.environ.get("WORKERS", "1")) - 1):
    if os.fork() == 0:
        break
serve()
