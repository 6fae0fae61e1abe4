"""The file store of Strands Agents: a session is a folder, and a message is a file in it."""

import uuid
from typing import Any

from strands.session import FileSessionManager

from recollect.verify.engines.endpoint import Endpoint


def file(endpoint: Endpoint) -> Any:
    """Beside SQLite's file, so that the same disk fails. A manager makes a session of its own, which nobody reads."""
    assert endpoint.path is not None
    return FileSessionManager(
        f"manager-{uuid.uuid4().hex}", storage_dir=str(endpoint.path.parent / "strands")
    )
