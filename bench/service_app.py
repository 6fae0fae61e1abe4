"""A FastAPI application with a memory in a file, for bench/service.py: with `SYNC=0` it answers before its fsync."""

import json
import os
from pathlib import Path

from fastapi import BackgroundTasks, FastAPI

FILE = Path(os.environ["DATA_DIR"]) / "notes.jsonl"
app = FastAPI()


@app.get("/health")
def health() -> dict[str, int]:
    return {"pid": os.getpid()}


def sync() -> None:
    with FILE.open("a") as file:
        os.fsync(file.fileno())


@app.post("/notes/{note}")
def add(note: str, later: BackgroundTasks) -> dict[str, str]:
    with FILE.open("a") as file:
        file.write(json.dumps(note) + "\n")
    if os.environ.get("SYNC") == "0":
        later.add_task(sync)  # after the answer
    else:
        sync()
    return {"stored": note}


@app.get("/notes")
def notes() -> list[str]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
