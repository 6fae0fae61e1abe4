"""The example of `docs/service-under-test.md`: a user's own application, with its own memory."""

import os
import sqlite3
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

FILE = Path(os.environ["MYAPP_DATA"]) / "notes.db"


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(FILE, isolation_level=None)
    # The default syncs the file but not that its journal was deleted: after a power loss the journal undoes the commit.
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    return connection


class Note(BaseModel):
    text: str


app = FastAPI()


@app.get("/health")
def health() -> dict[str, bool]:
    return {"ok": True}


@app.post("/notes")
def add(note: Note) -> Note:
    connection = connect()
    connection.execute("INSERT INTO notes VALUES (?)", (note.text,))
    connection.close()
    return note


@app.get("/notes")
def notes() -> list[str]:
    connection = connect()
    rows = connection.execute("SELECT text FROM notes").fetchall()
    connection.close()
    return [text for (text,) in rows]
