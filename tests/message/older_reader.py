"""The reader of schema 1, frozen: what a release that is still running during a rolling deploy does with a record.

Written without the current code on purpose. It must stay as it is when the schema moves on.
"""

import json
from typing import Any

KNOWN = ("v", "id", "role", "content", "timestamp", "metadata")


def read(raw: bytes) -> dict[str, Any]:
    """The fields this reader understands, and the others beside them."""
    record = json.loads(raw)
    if not isinstance(record, dict) or "v" not in record:
        raise ValueError("a record of another tool")
    missing = [name for name in KNOWN if name not in record]
    if missing:
        raise ValueError(f"fields missing: {missing}")
    if not isinstance(record["role"], str) or not isinstance(record["content"], str | list):
        raise ValueError("role or content changed its type")
    return record


def write_back(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode()
