"""One connection to Redis: a request out, its replies back.

redis-py makes the connection (address, TLS, authentication, database). After that we use its transport directly, in
RESP2: a request is a run of packed commands written at once, and the replies are handed over together. That is what a
group commit needs, costs less than the client's own path, and rules out a driver that retries on its own.

A wire has at most one request in flight. It is always known whether a request can have reached the engine: before
`ask` it cannot, afterwards it may have.
"""

import asyncio
import select
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from redis.asyncio.connection import AbstractConnection

STRINGS_AT_ONCE_LEAST = 8
READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 16
"""The longest number, length or error. A longer line without an end is not Redis, and would be buffered for ever."""
SIZE_MAX = 1 << 32
"""The longest string or array; Redis has no larger ones."""
DEPTH_MAX = 32
"""Arrays within arrays: no reply that a store asks for is nested more than a few levels."""

Reply = Union[int, bytes, None, "ReplyError", list["Reply"]]


class ReplyError(Exception):
    """The engine's error reply to one command. Returned as a value, because the other commands' replies still count."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


class WireLost(Exception):
    """The connection ended before all replies came."""


def pack(*arguments: bytes | str | int) -> bytes:
    """One command as the engine reads it."""
    return b"*%d\r\n%b" % (len(arguments), pack_arguments(arguments))


def pack_arguments(arguments: Iterable[bytes | str | int]) -> bytes:
    """Arguments without the command's header, so that parts that stay the same are packed once."""
    return pack_bytes([value if isinstance(value, bytes) else str(value).encode() for value in arguments])


def pack_bytes(arguments: Iterable[bytes]) -> bytes:
    """The same for an append, where it counts: its arguments are bytes already."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in arguments])


class Replies:
    """Parses RESP2 as it comes in, in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._open: list[tuple[list[Reply], int]] = []
        """Unfinished arrays, outermost first, with the number of elements each will have."""

    def feed(self, data: bytes | memoryview) -> list[Reply]:
        """The replies that are now complete."""
        if not self._buffer and not self._open and (numbers := _numbers(data)):
            return numbers
        return self._parsed(data)

    def _parsed(self, data: bytes | memoryview) -> list[Reply]:
        buffer = self._buffer
        buffer += data
        complete: list[Reply] = []
        position = 0
        while (end := buffer.find(b"\r\n", position)) >= 0:
            if self._open and (taken := self._take_strings(position, complete)):
                position += taken
                continue
            kind, head = buffer[position], bytes(buffer[position + 1 : end])
            value: Reply
            if kind == 0x3A:  # an integer
                value = int(head)
            elif kind == 0x24:  # a string
                end_of_value = end + 2 + _size(head)
                if head == b"-1":
                    value = None
                elif len(buffer) < end_of_value + 2:
                    break
                else:
                    value, end = bytes(buffer[end + 2 : end_of_value]), end_of_value
            elif kind == 0x2A:  # an array
                if (size := _size(head, len(self._open))) > 0:
                    self._open.append(([], size))
                    position = end + 2
                    continue
                value = [] if head == b"0" else None
            elif kind == 0x2B:
                value = head
            elif kind == 0x2D:
                value = ReplyError(head.decode("utf-8", "replace"))
            else:
                raise ValueError(f"not RESP2: {head[:40]!r}")
            position = end + 2
            self._place(value, complete)
        else:
            if len(buffer) - position > LINE_BYTES_MAX:
                raise ValueError(f"not RESP2: {bytes(buffer[position : position + 40])!r} has no end")
        del buffer[:position]
        return complete

    def _take_strings(self, position: int, complete: list[Reply]) -> int:
        """Parses the whole strings of a long array at once, if none holds a line end; returns the bytes taken."""
        elements, size = self._open[-1]
        missing = size - len(elements)
        if missing < STRINGS_AT_ONCE_LEAST or self._buffer[position] != 0x24:
            return 0
        parts = bytes(memoryview(self._buffer)[position:]).split(b"\r\n", 2 * missing)
        count = (len(parts) - 1) // 2
        heads, strings = parts[0 : 2 * count : 2], parts[1 : 2 * count : 2]
        if not count or heads != [b"$%d" % len(string) for string in strings]:
            return 0
        self._place(strings.pop(), complete, strings)
        return sum(map(len, parts[: 2 * count])) + 4 * count

    def _place(self, value: Reply, complete: list[Reply], before: Sequence[Reply] = ()) -> None:
        """Puts a value, and those `before` it, into the innermost array; a completed array goes one level out."""
        if self._open:
            self._open[-1][0].extend(before)
        while self._open:
            elements, size = self._open[-1]
            elements.append(value)
            if len(elements) < size:
                return
            value = elements
            self._open.pop()
        complete.append(value)


def _numbers(data: bytes | memoryview) -> list[Reply] | None:
    """Whole integers and nothing else, at most with an array of them first, as a batch of appends is answered: at once.
    None if it is anything else."""
    if data[:1] not in (b":", b"*"):
        return None
    text = bytes(data)
    array = text[:1] == b"*"
    if array:
        size, _, text = text[1:].partition(b"\r\n")
    if text[:1] != b":" or text[-2:] != b"\r\n" or b"\r\n\r\n" in text:
        return None
    try:
        numbers: list[Reply] = list(map(int, text[1:-2].split(b"\r\n:")))
        if array:
            if not 0 < (count := int(size)) <= len(numbers):
                return None
            numbers[:count] = [numbers[:count]]
    except ValueError:
        return None
    return numbers


def _size(head: bytes, depth: int = 0) -> int:
    """The size of a string or an array. A length below -1 would be parsed for ever."""
    size = int(head)
    if not -1 <= size <= SIZE_MAX or depth >= DEPTH_MAX:
        raise ValueError(f"not RESP2: {head[:40]!r} elements, {depth} deep")
    return size


class Wire(asyncio.BufferedProtocol):
    """A connection after its handshake. Made by `connect`.

    It reads into a buffer of its own. A plain protocol is given new bytes, for which the event loop asks the system for
    a quarter of a megabyte each time: five times the cost of a small reply, and in a cluster most replies are small.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        # Taken over from redis-py, which has no public way to hand over its streams. The writer is kept, because it
        # closes the transport when it is garbage-collected.
        writer: Any = connection._writer
        connection._writer = connection._reader = None
        self._writer = writer
        self._transport: asyncio.Transport = writer.transport
        self._transport.set_protocol(self)
        self._idle_events = select.poll()
        self._idle_events.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._parser = Replies()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._replies: list[Reply] = []
        self._wanted = 0
        self._done: Callable[[list[Reply] | WireLost], None] | None = None
        self.closed = False
        self.run = ""
        """The `run_id` of the engine at the other end: a new one after a restart."""
        self.ended = asyncio.Event()

    @property
    def is_usable(self) -> bool:
        """Idle and not closed by the engine. Asks the socket, because the event loop may not have run since."""
        return not self.closed and self._done is None and not self._idle_events.poll(0)

    @property
    def awaited(self) -> object | None:
        """Stands for the request that is under way, if one is."""
        return self._done

    def lend(self) -> int:
        """The file number of its socket, for a thread that waits by itself: the loop reads nothing from it any more."""
        self._transport.pause_reading()
        number: int = self._transport.get_extra_info("socket").fileno()
        return number

    def ask(self, request: bytes, count: int, done: Callable[[list[Reply] | WireLost], None]) -> None:
        """Sends the request; `done` gets its `count` replies, or `WireLost`."""
        self._wanted, self._done, self._replies = count, done, []
        self._transport.write(request)

    async def replies(self, request: bytes, count: int) -> list[Reply]:
        """The replies to the request, or raises `WireLost`. A cancelled wait ends the connection."""
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()

        def done(replies: list[Reply] | WireLost) -> None:
            if future.done():
                return
            if isinstance(replies, WireLost):
                future.set_exception(replies)
            else:
                future.set_result(replies)

        self.ask(request, count, done)
        try:
            return await future
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    # ---- called by the event loop

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            replies = self._parser.feed(self._buffer[:nbytes])
        except ValueError:
            self.abort()
            return
        if self._replies:
            replies = self._replies + replies
        if (done := self._done) is None:  # nobody asked: the engine is saying goodbye
            self.abort()
        elif len(replies) >= self._wanted:
            self._done, self._replies = None, []
            done(replies)
        else:
            self._replies = replies

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.ended.set()
        done, self._done = self._done, None
        if done is not None:
            done(WireLost("the engine closed the connection" if error is None else str(error)))


async def connect(connection: AbstractConnection, timeout_s: float) -> Wire:
    """Connects, authenticates, chooses the database. Raises what redis-py raises, or `TimeoutError`."""
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connect()  # type: ignore[no-untyped-call]
        return Wire(connection)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
