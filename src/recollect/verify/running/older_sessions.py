"""What older data has to hold (`--expect`): sessions and their messages, one session per line.

    {"session": "user-42", "messages": [{"role": "user", "content": "my name is Xiao Li"}, "or only the text"]}

What `recollect export` writes is taken as well. Texts are compared, and roles where both sides have one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from recollect.errors import RecollectError, shorten
from recollect.message import Message
from recollect.regular_files import open_file
from recollect.transfer import Exported, parts_of
from recollect.verify.running.older_data import BadData
from recollect.verify.target.returned import fields_of


class KeptMessage(NamedTuple):
    text: str
    role: str | None = None


Sessions = dict[str, list[KeptMessage]]

_FORM = '{"session": "…", "messages": [{"role": "user", "content": "…"}, …]}'


def load(path: Path) -> Sessions:
    """Raises `BadData` with the line that is not as it should be."""
    try:
        found = _exported(path) if _is_export(path) else _listed(path)
    except OSError as error:
        raise BadData(f"--expect {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BadData(f"--expect {path} is not UTF-8: {error}") from None
    if not any(found.values()):
        raise BadData(f"--expect {path} lists no message, so there is nothing to look for")
    return found


def _is_export(path: Path) -> bool:
    with open_file(path) as file:
        return b'"recollect":"export"' in file.readline(4096).replace(b" ", b"")


def _exported(path: Path) -> Sessions:
    found: Sessions = {}
    messages: list[KeptMessage] = []
    try:
        for part in parts_of(path):
            if isinstance(part, Exported):
                messages = found.setdefault(part.session, [])
            elif isinstance(part.message, Message):
                messages.append(_kept(part.message))
    except RecollectError as error:
        raise BadData(f"--expect {path}: {error}") from None
    return found


def _listed(path: Path) -> Sessions:
    found: Sessions = {}
    for number, line in _lines(path):
        where = f"--expect {path}, line {number}"
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadData(f"{where} is not JSON: {error}; each line is {_FORM}") from None
        session, messages = _row(row, where)
        if session in found:
            raise BadData(f"{where} has the session {shorten(session)} again; each session is one line")
        found[session] = [
            _message(item, f"{where}, message {place}") for place, item in enumerate(messages, 1)
        ]
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def _row(row: Any, where: str) -> tuple[str, list[Any]]:
    if (
        isinstance(row, dict)
        and isinstance(row.get("session"), str)
        and isinstance(row.get("messages"), list)
    ):
        return row["session"], row["messages"]
    raise BadData(f"{where} has no text `session` and no list `messages`; each line is {_FORM}")


def _message(item: Any, where: str) -> KeptMessage:
    if not isinstance(item, str | Mapping) or (isinstance(item, Mapping) and "content" not in item):
        raise BadData(
            f"{where} is {shorten(str(item))}; a message is a text, or has `content` and perhaps `role`"
        )
    return _kept(item)


def _kept(message: str | Mapping[str, Any] | Message) -> KeptMessage:
    text, role, _ = fields_of(message)
    return KeptMessage(text, role)
