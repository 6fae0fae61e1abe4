"""A whole memory as one file of lines, and back: the way from one engine to another.

The file is JSON lines: a head; for each session a line that opens it (its id, metadata, times, position, turn ids, and
when it expires), a line for each message with its sequence, and a line that closes it with their count and the checksum
of all these lines; and a foot with the totals. A file that was cut short has no foot, and in one that was changed the
checksums do not match: both are refused before anything is written.

A session is exported as it was at one moment; different sessions are from different moments. It is the same session
where it is imported: its messages have the sequences they had, so cursors and positions stay right; a turn that is sent
again is recognised there, so it is not stored twice; and it expires when it would have. An import can be resumed: what
a session's position says is there already is compared and not written again. A session that has other content is left
alone and reported as an error. After writing, each session is read back and must have the file's messages.

Not carried: sessions that are forgotten or expired. Damaged records are counted and left out. Files of the first format
have neither sequences nor turn ids nor times to live; their messages get sequences from 1.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec

from recollect import __version__
from recollect.bounds import INTEGER_MAX
from recollect.changing import metadata_record
from recollect.checksum import checksum
from recollect.errors import Conflict, RecollectError, Refused, Unreadable, advising, shorten
from recollect.json_values import decode_json, encode_json
from recollect.message import Damaged, Message, decode, encode
from recollect.moving import Movable, RememberedTurn, SessionKept, piece_of
from recollect.printable import counted
from recollect.regular_files import open_file
from recollect.store import Description, SessionState, Store, Stored

FORMAT = 2
FORMATS = (1, 2)
"""Those that can be imported."""
PORTION = 500
PORTION_BYTES = 16 * 1024 * 1024
"""Written in one step: this many messages or, if they are large, as many as fit, and at least one. Redis ends a
connection that sends a gigabyte at once, and PostgreSQL takes no more either."""
LEFT_OUT = "sessions that are forgotten or expired"
"""What the file does not carry."""
LINE_BYTES_MAX = 512 * 1024 * 1024
TRIES = 100
"""How often to read a session that others keep changing."""


class Moved(msgspec.Struct):
    """The totals of an export or import."""

    sessions: int = 0
    messages: int = 0
    damaged: int = 0
    """Records that cannot be read and are not in the file."""
    left_out: int = 0
    """Sessions that the caller did not want in the file."""
    expired: int = 0
    """Sessions of the file that had expired by the time it was imported."""
    present: int = 0
    """Messages that were in the store before the import."""


class Exported(msgspec.Struct, frozen=True):
    """The opening line of a session in a file; its messages follow one by one."""

    session: str
    metadata: dict[str, Any]
    created: float | None
    updated: float | None
    position: int | None
    """None in a file of the first format: as many as there are messages."""
    kept: SessionKept


# ---- out


async def export_lines(
    store: Store, moved: Moved, prefix: str | None = None, *, leave_out: Callable[[str], bool] | None = None
) -> AsyncIterator[bytes]:
    """The lines of the file, with their line ends. `moved` is kept up to date."""
    yield _line({"recollect": "export", "format": FORMAT, "release": __version__, "export": uuid.uuid4().hex})
    total = blake2b(digest_size=16)
    async for session in store.sessions(prefix=prefix):
        if leave_out is not None and leave_out(session):
            moved.left_out += 1
            continue
        about, stored, kept = await _at_one_moment(movable(store), session)
        if about.state is not SessionState.LIVE or (not stored and not about.metadata):
            continue
        digest, count = blake2b(digest_size=16), 0
        line = _opening(about, kept)
        digest.update(line)
        yield line
        for item in _readable(stored, moved):
            line = b'{"sequence":%d,"message":%b}\n' % (item.sequence, _bare(item.message))
            digest.update(line)
            count += 1
            yield line
        total.update(digest.digest())
        moved.sessions, moved.messages = moved.sessions + 1, moved.messages + count
        yield _line({"end": session, "messages": count, "checksum": digest.hexdigest()})
    yield _line({"sessions": moved.sessions, "messages": moved.messages, "checksum": total.hexdigest()})


def movable(store: Store) -> Movable:
    """The same store, if its sessions can be moved."""
    if not isinstance(store, Movable):
        raise Refused(f"{type(store).__name__}: only the stores of open_store can be exported and imported")
    return store


async def _at_one_moment(store: Movable, session: str) -> tuple[Description, list[Stored], SessionKept]:
    """Every change except `forget` moves the position, so what was read between two equal ones is of one moment."""
    before = await store.describe(session)
    for _ in range(TRIES):
        stored, kept = await store.history(session), await store.kept(session)
        after = await store.describe(session)
        if (before.position, before.state) == (after.position, after.state):
            return after, stored, kept
        before = after
    raise Unreadable(
        f"session {shorten(session)} changes faster than it can be read; export when less is going on"
    )


def _opening(about: Description, kept: SessionKept) -> bytes:
    return _line(
        {
            "session": about.session,
            "metadata": about.metadata,
            "created": about.created,
            "updated": about.updated,
            "position": about.position,
            "expires": kept.expires,
            "turns": [
                [each.turn, each.first, each.last, each.fingerprint and each.fingerprint.hex()]
                for each in kept.turns
            ],
        }
    )


def _readable(stored: Iterable[Stored], moved: Moved) -> Iterator[Stored]:
    for item in stored:
        if isinstance(item.message, Damaged):
            moved.damaged += 1
        else:
            yield item


def _bare(message: Message | Damaged) -> bytes:
    """The record without its checksum: the file has its own."""
    assert isinstance(message, Message)
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
    writing: _Writing | None = None
    for item in parts_of(path):
        if isinstance(item, Exported):
            if writing is not None:
                await writing.finish(moved)
                yield moved
            writing = _Writing(movable(store), item)
            await writing.begin()
        else:
            assert writing is not None
            await writing.take(item)
    if writing is not None:
        await writing.finish(moved)
        yield moved


class _Writing:
    """One session on its way into a store."""

    def __init__(self, store: Movable, opened: Exported) -> None:
        self._store = store
        self._opened = opened
        self._waiting: list[Stored] = []
        self._size = 0
        """Bytes of those that wait."""
        self._base = 0
        self._there = 0
        """The session's position in the store: messages up to it are compared, not written."""
        self._wrote = False
        self._count = 0
        self._present = 0
        self._digest = blake2b(digest_size=16)
        self._expired = opened.kept.expires is not None and opened.kept.expires <= time.time()

    async def begin(self) -> None:
        about = await self._store.describe(self._opened.session)
        if about.state in (SessionState.FORGOTTEN, SessionState.EXPIRED) and not self._expired:
            raise self._other_content()
        self._there = about.position

    async def take(self, item: Stored) -> None:
        size = len(_bare(item.message))
        if self._waiting and (len(self._waiting) == PORTION or self._size + size > PORTION_BYTES):
            await self._write(self._waiting[-1].sequence, last=False)
            self._size = 0
        self._waiting.append(item)
        self._size += size
        self._count += 1

    async def finish(self, moved: Moved) -> None:
        """Writes the rest, reads everything back and adds to the totals."""
        if self._expired:
            moved.expired += 1
            return
        position = self._opened.position
        if position is None:  # metadata without a message has a sequence too
            position = max(self._count, 1 if self._opened.metadata else 0)
        await self._write(position, last=True)
        if not await self._reads_back(self._base):
            raise Unreadable(
                f"session {shorten(self._opened.session)} was imported and does not read back as it is in the file, "
                f"which has {counted(self._count, 'message')}"
            )
        moved.sessions, moved.messages = moved.sessions + 1, moved.messages + self._count
        moved.present += self._present

    async def _write(self, upto: int, *, last: bool) -> None:
        """The messages that wait, and what there is up to this sequence."""
        waiting, self._waiting, base = self._waiting, [], self._base
        if self._expired:
            return
        resumed = base == self._there > 0 and not self._wrote
        if base < self._there < upto or (resumed and not await self._reads_back(base)):
            raise self._other_content()
        self._base = upto
        _digest(self._digest, waiting)
        if self._there >= upto:
            self._present += len(waiting)
            if last and not await self._reads_back(upto):
                raise self._other_content()
            return
        opened = self._opened
        piece = piece_of(
            base,
            waiting,
            upto,
            created=opened.created,
            updated=opened.updated,
            metadata=metadata_record(opened.metadata) if last and opened.metadata else None,
            kept=opened.kept if last else None,
            turns=() if opened.kept is None else opened.kept.turns,
        )
        try:
            with advising("import again"):
                await self._store.restore(opened.session, piece)
        except Conflict as error:
            raise self._other_content() from error
        self._there, self._wrote = upto, True

    async def _reads_back(self, upto: int) -> bool:
        """Whether the store has the messages so far, in their places and no others."""
        found, unreadable = blake2b(digest_size=16), Moved()
        stored = await self._store.history(self._opened.session)
        _digest(found, _readable((item for item in stored if item.sequence <= upto), unreadable))
        return not unreadable.damaged and found.digest() == self._digest.digest()

    def _other_content(self) -> Refused:
        return Refused(
            f"session {shorten(self._opened.session)} has other content already, and is left as it is; erase it, or "
            "import into another store"
        )


def _digest(digest: Any, items: Iterable[Stored]) -> None:
    for item in items:
        digest.update(b"%d " % item.sequence)
        digest.update(_bare(item.message))


# ---- the file


class _ReadSession:
    """A session of a file that is being read."""

    def __init__(self, opened: Exported, line: bytes, *, first_format: bool) -> None:
        self.opened = opened
        self.count = 0
        self.last = 0
        self.digest = blake2b(digest_size=16)
        self._first_format = first_format
        if not first_format:
            self.digest.update(line + b"\n")

    def message(self, line: bytes) -> Stored | str:
        """The message of a line, or what is wrong with it."""
        head, found, record = line.partition(b'"message":')
        record = record[:-1]
        self.count += 1
        if self._first_format:
            sequence = self.count
            self.digest.update(record)
        else:
            digits = head[len(_SEQUENCE) : -1]
            if not (found and head.startswith(_SEQUENCE) and digits.isdigit() and len(digits) <= 15):
                return "no sequence"
            sequence = int(digits)
            self.digest.update(line + b"\n")
        if not self.last < sequence <= (self.opened.position or sequence):
            return f"message {sequence} is out of order"
        self.last = sequence
        message = decode(record + checksum(record))
        return message.reason if isinstance(message, Damaged) else Stored(sequence, message)


def parts_of(path: Path) -> Iterator[Exported | Stored]:
    """Sessions, each followed by its messages; raises `Unreadable` if the file is not what was written."""
    total, found = blake2b(digest_size=16), Moved()
    session: _ReadSession | None = None
    first_format, whole = False, False
    for number, line in _lines(path):
        kind, fields = _parsed(path, number, line)
        if whole or (kind == "head") != (number == 1):
            raise _broken(path, number, "this line does not belong here")
        if kind == "head":
            first_format = fields["format"] == 1
        elif kind == "session" and session is None:
            session = _ReadSession(_opened(path, number, fields), line, first_format=first_format)
            yield session.opened
        elif kind == "message" and session is not None:
            item = session.message(line)
            if isinstance(item, str):
                raise _broken(path, number, item)
            yield item
        elif kind == "end" and session is not None:
            name, count, digest = session.opened.session, session.count, session.digest
            if (fields["end"], fields["messages"], fields["checksum"]) != (name, count, digest.hexdigest()):
                raise _broken(path, number, f"session {shorten(name)} is not as it was exported")
            total.update(digest.digest())
            found.sessions, found.messages, session = found.sessions + 1, found.messages + count, None
        elif kind == "foot" and session is None:
            totals = (fields["sessions"], fields["messages"], fields["checksum"])
            whole = totals == (found.sessions, found.messages, total.hexdigest())
            if not whole:
                raise _broken(path, number, "the totals are not those of the lines before")
        else:
            raise _broken(path, number, "this line does not belong here")
    if not whole:
        raise Unreadable(f"{path} is cut short: its last line is missing; export again")


def _opened(path: Path, number: int, fields: dict[str, Any]) -> Exported:
    try:
        line = msgspec.convert(fields, _SessionLine)
        turns = [
            RememberedTurn(turn, first, last, None if digest is None else bytes.fromhex(digest))
            for turn, first, last, digest in line.turns or []
        ]
    except ValueError as error:  # msgspec's own is one
        raise _broken(path, number, f"not a session of an export ({type(error).__name__}: {error})") from None
    kept = SessionKept(line.expires, turns)
    return Exported(line.session, line.metadata or {}, line.created, line.updated, line.position, kept)


_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]


class _SessionLine(msgspec.Struct):
    """The line that opens a session. The checksums tell what has changed, not who wrote it, so nothing is believed."""

    session: str
    metadata: dict[str, Any] | None
    created: _Moment | None = None
    updated: _Moment | None = None
    position: _Number | None = None
    expires: _Moment | None = None
    turns: list[tuple[str, _Number, _Number, str | None]] | None = None


_SEQUENCE = b'{"sequence":'
_HEAD = b'{"recollect":'
_KINDS = {"recollect": "head", "session": "session", "message": "message", "end": "end", "sessions": "foot"}
_WANTED = {
    "head": {"export"},
    "session": {"metadata"},
    "end": {"messages", "checksum"},
    "foot": {"messages", "checksum"},
}


def _parsed(path: Path, number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    if line.startswith((b'{"message":', _SEQUENCE)):
        return "message", {}
    try:
        fields = decode_json(line)
        if not isinstance(fields, dict):
            raise TypeError
        kind = _KINDS[next(iter(fields))]
        if kind == "head" and type(form := fields["format"]) is int and form > FORMAT:
            raise Unreadable(f"{path}: format {form}, and this release knows {FORMAT}: upgrade recollect")
        if not _WANTED[kind] <= fields.keys() or (kind == "head" and fields["format"] not in FORMATS):
            raise ValueError("not a format that this release knows")
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
        raise _broken(path, number, f"not a line of an export ({type(error).__name__})") from None
    return kind, fields


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open_file(path) as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if number == 1 and not line.startswith(_HEAD):
                raise Unreadable(f"{path} is no file that `recollect export` wrote")
            if not line.endswith(b"\n"):
                raise Unreadable(f"{path} is cut short in line {number:,}; export again")
            yield number, line[:-1]
    if not number:
        raise Unreadable(f"{path} is empty; nothing was exported")


def _broken(path: Path, number: int, why: str) -> RecollectError:
    return Unreadable(f"{path}, line {number:,}: {why}; nothing of it is imported: export again")
