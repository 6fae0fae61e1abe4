"""Rows in SQLite, and the text of each message in a file beside the database, where long ones are no burden."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.sqlite_rows import SqliteRows


class SqliteBodies(SqliteRows):
    """The file and its name are on the disk before the row that points to it is committed."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        assert endpoint.path is not None
        self.folder = Path(endpoint.path).parent / "bodies"
        self.folder.mkdir(exist_ok=True)
        self.sync(self.folder.parent)

    def append_message(self, session: str, message: Any) -> None:
        body = self.folder / f"{uuid4().hex}.json"
        body.write_text(json.dumps(message["content"]))
        self.sync(body)
        self.sync(self.folder)
        super().append_message(session, {"role": message["role"], "content": body.name})

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def get_history(self, session: str) -> list[Any]:
        return [
            {**row, "content": json.loads((self.folder / row["content"]).read_text())}
            for row in super().get_history(session)
        ]
