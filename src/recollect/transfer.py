"""A whole memory as one file of lines, and back: the way from one engine to another.

The file is JSON lines: a head with the export's own id; for each session a line that opens it (its id, metadata and
times), a line for each message, and a line that closes it with their count and checksum; and a foot with the totals.
A file that was cut short has no foot, and in one that was changed the checksums do not match: both are refused before
anything is written.

A session is read in one call, so its messages are from one moment; different sessions are from different moments.
Importing can be resumed: each portion of a session is a turn whose id is derived from the export's, so a second import
of the same file stores nothing twice and continues where the first one stopped. A session that already has other
content is left alone and reported as an error. After writing, each session is read back and must have the file's count
and checksum.

Not carried: sequences (they begin at 1, without gaps), turn ids, the time a session has left to live, and sessions
that are forgotten or expired. Damaged records are counted and left out.
"""

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from recollect import __version__
from recollect.checksum import checksum
from recollect.errors import Conflict, RecollectError, Refused, TurnReused, Unreadable, shorten
from recollect.json_values import decode_json, encode_json
from recollect.message import Damaged, Message, decode, encode
from recollect.store import Store, Stored

FORMAT = 1
PORTION = 500
"""Messages in one turn of an import."""
LEFT_OUT = "sequences (they begin at 1 again), turn ids, and how long a session has left to live"
"""What the file does not carry of live sessions."""
LINE_BYTES_MAX = 512 * 1024 * 1024


class Moved(msgspec.Struct):
    """The totals of an export or import."""

    sessions: int = 0
    messages: int = 0
    damaged: int = 0
    """Records that cannot be read and are not in the file."""


class Exported(msgspec.Struct, frozen=True):
    """The opening line of a session in a file; its messages follow one by one."""

    session: str
    metadata: dict[str, Any]
    export: str
    """The id of the export."""


# ---- out


async def export_lines(store: Store, moved: Moved, prefix: str | None = None) -> AsyncIterator[bytes]:
    """The lines of the file, with their line ends. `moved` is kept up to date."""
    head = {"recollect": "export", "format": FORMAT, "release": __version__, "export": uuid.uuid4().hex}
    yield _line(head)
    total = blake2b(digest_size=16)
    async for session in store.sessions(prefix=prefix):
        about = await store.describe(session)
        stored = await store.history(session)
        if not stored and not about.metadata:
            continue
        yield _line({"session": session, "metadata": about.metadata, "created": about.created})
        digest, count = blake2b(digest_size=16), 0
        for record in _records(stored, moved):
            digest.update(record)
            count += 1
            yield b'{"message":' + record + b"}\n"
        total.update(digest.digest())
        moved.sessions, moved.messages = moved.sessions + 1, moved.messages + count
        yield _line({"end": session, "messages": count, "checksum": digest.hexdigest()})
    yield _line({"sessions": moved.sessions, "messages": moved.messages, "checksum": total.hexdigest()})


def _records(stored: Iterable[Stored], moved: Moved) -> Iterator[bytes]:
    for item in stored:
        if isinstance(item.message, Damaged):
            moved.damaged += 1
        else:
            yield _bare(item.message)


def _bare(message: Message) -> bytes:
    """The record without its checksum, whose white space would break the line."""
    return encode(message).rstrip()


def _line(fields: dict[str, Any]) -> bytes:
    return encode_json(fields) + b"\n"


# ---- in


def check_file(path: Path) -> Moved:
    """What is in the file; `Unreadable` if it is not whole."""
    found = Moved()
    for item in parts_of(path):
        if isinstance(item, Exported):
            found.sessions += 1
        else:
            found.messages += 1
    return found


async def import_file(store: Store, path: Path) -> AsyncIterator[Moved]:
    """Writes the file's sessions into the store and yields the totals so far after each. Call `check_file` first."""
    moved = Moved()
    opened: Exported | None = None
    waiting: list[Message] = []
    writing = _Writing(store)
    for item in parts_of(path):
        if isinstance(item, Exported):
            if opened is not None:
                moved.messages += await writing.finish(opened, waiting)
                moved.sessions += 1
                yield moved
            opened, waiting = item, []
            writing = _Writing(store)
            continue
        assert opened is not None
        waiting.append(item)
        if len(waiting) == PORTION:
            await writing.write(opened, waiting)
            waiting = []
    if opened is not None:
        moved.messages += await writing.finish(opened, waiting)
        moved.sessions += 1
        yield moved


class _Writing:
    """One session on its way into a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._portions = 0
        self._position = 0
        self._count = 0
        self._digest = blake2b(digest_size=16)

    async def write(self, opened: Exported, messages: list[Message]) -> None:
        turn = f"import {opened.export} {self._portions}"
        try:
            receipt = await self._store.append(opened.session, messages, turn=turn, expect=self._position)
        except (Conflict, TurnReused) as error:
            raise Refused(
                f"session {shorten(opened.session)} has other content already, and is left as it is; forget it, or "
                "import into another store"
            ) from error
        self._position = receipt.last
        self._portions += 1
        self._count += len(messages)
        for message in messages:
            self._digest.update(_bare(message))

    async def finish(self, opened: Exported, rest: list[Message]) -> int:
        """Writes the rest, reads everything back and returns the number of messages."""
        if rest:
            await self.write(opened, rest)
        stored = await self._store.history(opened.session)
        found, unreadable = blake2b(digest_size=16), Moved()
        for record in _records((item for item in stored if item.sequence <= self._position), unreadable):
            found.update(record)
        if unreadable.damaged or found.digest() != self._digest.digest():
            raise Unreadable(
                f"session {shorten(opened.session)} was imported and does not read back as it is in the file: "
                f"{len(stored)} messages, {self._count} in the file"
            )
        if opened.metadata and (await self._store.describe(opened.session)).metadata != opened.metadata:
            await self._store.annotate(
                opened.session, opened.metadata, turn=f"import {opened.export} metadata"
            )
        return self._count


def parts_of(path: Path) -> Iterator[Exported | Message]:
    """Sessions, each followed by its messages; raises `Unreadable` if the file is not what was written."""
    total, sessions, messages = blake2b(digest_size=16), 0, 0
    opened: Exported | None = None
    digest, count = blake2b(digest_size=16), 0
    export, whole = "", False
    for number, line in _lines(path):
        kind, fields = _parsed(path, number, line)
        if whole or (kind == "head") != (number == 1):
            raise _broken(path, number, "this line does not belong here")
        if kind == "head":
            export = str(fields["export"])
        elif kind == "session" and opened is None:
            opened = Exported(str(fields["session"]), dict(fields["metadata"] or {}), export)
            digest, count = blake2b(digest_size=16), 0
            yield opened
        elif kind == "message" and opened is not None:
            record = line[len(b'{"message":') : -len(b"}")]
            digest.update(record)
            count += 1
            message = decode(record + checksum(record))
            if isinstance(message, Damaged):
                raise _broken(path, number, message.reason)
            yield message
        elif kind == "end" and opened is not None:
            if (fields["end"], fields["messages"], fields["checksum"]) != (
                *(opened.session, count, digest.hexdigest()),
            ):
                raise _broken(path, number, f"session {shorten(opened.session)} is not as it was exported")
            total.update(digest.digest())
            sessions, messages, opened = sessions + 1, messages + count, None
        elif kind == "foot" and opened is None:
            found = (fields["sessions"], fields["messages"], fields["checksum"])
            whole = found == (sessions, messages, total.hexdigest())
            if not whole:
                raise _broken(path, number, "the totals are not those of the lines before")
        else:
            raise _broken(path, number, "this line does not belong here")
    if not whole:
        raise Unreadable(f"{path} is cut short: its last line is missing; export again")


_KINDS = {"recollect": "head", "session": "session", "message": "message", "end": "end", "sessions": "foot"}


def _parsed(path: Path, number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    if line.startswith(b'{"message":'):
        return "message", {}
    try:
        fields = decode_json(line)
        kind = _KINDS[next(iter(fields))]
        wanted = {"head": "export", "session": "metadata", "end": "checksum", "foot": "checksum"}[kind]
        if wanted not in fields or (kind == "head" and fields["format"] != FORMAT):
            raise ValueError("not a format that this release knows")
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
        raise _broken(path, number, f"not a line of an export ({type(error).__name__})") from None
    return kind, fields


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if not line.endswith(b"\n"):
                raise Unreadable(f"{path} is cut short in line {number:,}; export again")
            yield number, line[:-1]
    if not number:
        raise Unreadable(f"{path} is empty; nothing was exported")


def _broken(path: Path, number: int, why: str) -> RecollectError:
    return Unreadable(f"{path}, line {number:,}: {why}; nothing of it is imported: export again")
