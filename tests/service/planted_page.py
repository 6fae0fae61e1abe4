"""A page to talk to, with a memory in a file. `MODE` chooses what it is worth.

`honest` fsyncs before it answers; `unsynced` writes and answers.
"""

import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE = Path(os.environ["DATA_DIR"]) / "notes.jsonl"
MODE = os.environ.get("MODE", "honest")
PAGE = b"""<!doctype html><title>Bot</title><ul id=talk></ul>
<form><input id=message autocomplete=off><button>Say</button></form>
<script>
document.querySelector("form").onsubmit = async (event) => {
  event.preventDefault();
  const box = document.querySelector("#message"), text = box.value;
  box.value = "";
  const answer = await fetch("/say", {method: "POST", body: JSON.stringify(text)});
  const item = document.createElement("li");
  item.className = "bot";
  item.textContent = await answer.json();
  document.querySelector("#talk").append(item);
};
</script>"""


def keep(text: str) -> None:
    with FILE.open("a") as file:
        file.write(json.dumps(text) + "\n")
        file.flush()
        if MODE == "honest":
            os.fsync(file.fileno())


def reply(text: str) -> str:
    if not text.endswith("?"):
        keep(text)
        return "Noted."
    said = FILE.read_text() if FILE.exists() else ""
    found = re.findall(r"name is ([\w ]+)", said)
    return f"You are {found[-1]}." if found else "I do not know."


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer("text/html; charset=utf-8", PAGE)

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer("application/json", json.dumps(reply(text)).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        return


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
