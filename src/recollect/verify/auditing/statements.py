"""What a client of PostgreSQL asks for, as the gate passes it on: everything but what would end the session's reading.

The session is read-only by `default_transaction_read_only`, so the server itself refuses whatever writes. What is left
to do here is to keep it so. SQL is split into tokens as PostgreSQL does it, because comments may stand between any two
words and names may be quoted:

* A transaction that is asked to write gets the mode to read instead.
* A setting that ends the reading is set under a name of ours, which means nothing.
* What PostgreSQL allows in a transaction that only reads although it changes something (`DO`, `CALL`, `VACUUM`,
  `ALTER SYSTEM`, a change of `pg_settings`), and settings whose names are computed, become a call of a function that
  no server has: the server answers with an error, in its place among the other answers.

Not seen: a function in the database that changes settings itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

REFUSED = "recollect-audit-only-reads:"
"""What the name of a function or command begins with that the gate has put in the place of another."""

HEAD_BYTES = 5
"""The kind of a message, and its length."""

PASSED = frozenset(
    b"abort begin close commit copy deallocate declare discard end execute explain fetch listen move prepare release "
    b"reset rollback savepoint select set show start table unlisten values with "
    # Refused by the server, which says that the transaction only reads.
    b"alter comment create delete drop grant import insert merge revoke truncate update".split()
)
"""What a statement may begin with."""
MODES = frozenset((b"begin", b"start", b"set"))
SETS = frozenset((b"set", b"reset"))
KEPT = (b"read_only", b"standard_conforming_strings")
"""Parts of settings that stay as they are: the second decides where a string ends."""
INSTEAD = b"recollect.reads_only"

_TOKEN = re.compile(
    rb"""
      (?P<space>\s+ | --[^\n\r]*)
    | (?P<comment>/\*)
    | (?P<odd>[uU]&["'] | [eE]'(?:[^'\\]|\\.|'')*')
    | (?P<string>[bBnNxX]?'(?:[^']|'')*')
    | (?P<dollar>\$(?:[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*)?\$)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[A-Za-z_\x80-\xff][A-Za-z0-9_$\x80-\xff]*)
    | (?P<number>[0-9][A-Za-z0-9_.]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_PART = re.compile(rb"/\*|\*/")


class NotItsClient(Exception):
    """The bytes are not the server's protocol."""


class _Token(NamedTuple):
    kind: str
    text: bytes
    """A word in lower case and a name without its quotes; a string as it stands there."""
    first: int
    end: int


class Statements:
    """Message by message: it is passed on when all of it is there."""

    def __init__(self) -> None:
        self._buffer = b""

    def take(self, data: bytes) -> bytes:
        self._buffer += data
        sent, place = [], 0
        while len(self._buffer) >= place + HEAD_BYTES:
            (length,) = struct.unpack_from("!i", self._buffer, place + 1)
            if length < 4:
                raise NotItsClient
            end = place + 1 + length
            if len(self._buffer) < end:
                break
            sent.append(_passed(self._buffer[place:end]))
            place = end
        self._buffer = self._buffer[place:]
        return b"".join(sent)


def _passed(message: bytes) -> bytes:
    kind, body = message[:1], message[HEAD_BYTES:]
    if kind == b"F":  # a function by its number, which only drivers for large objects use
        raise NotItsClient
    if kind == b"Q":
        sql, nul, rest = body.partition(b"\0")
        body = reading(sql) + nul + rest
    elif kind == b"P":
        name, _, more = body.partition(b"\0")
        sql, nul, rest = more.partition(b"\0")
        body = name + b"\0" + reading(sql) + nul + rest
    return kind + struct.pack("!i", len(body) + 4) + body


def reading(sql: bytes) -> bytes:
    """The same statements, or those that leave the session as it is."""
    try:
        statements = list(_statements(sql))
        changes = [change for statement in statements for change in _changes(statement)]
    except _NotPassed as error:
        word = re.sub(rb"[^a-z_ ]", b"", error.args[0])[:30]
        return b'SELECT "%s %s"()' % (REFUSED.encode(), word)
    for token, instead in reversed(changes):
        sql = sql[: token.first] + instead + sql[token.end :]
    return sql


class _NotPassed(Exception):
    """The argument says what is not passed on."""


def _statements(sql: bytes) -> Iterator[list[_Token]]:
    found: list[_Token] = []
    for token in _tokens(sql):
        if token.text == b";" and token.kind == "other":
            yield found
            found = []
        else:
            found.append(token)
    yield found


def _tokens(sql: bytes) -> Iterator[_Token]:
    place = 0
    while place < len(sql):
        match = _TOKEN.match(sql, place)
        assert match is not None  # any byte is a token
        kind, text, end = str(match.lastgroup), match[0], match.end()
        if kind == "comment":
            end = _end_of_comment(sql, end)
        elif kind == "dollar":
            end = sql.find(text, end) + len(text)
            if end < match.end() + len(text):
                raise _NotPassed(b"a string without an end")
            yield _Token("string", text, place, end)
        elif kind == "quoted":
            yield _Token("word", text[1:-1].replace(b'""', b'"'), place, end)
        elif kind == "other" and text in b"'\"":
            raise _NotPassed(b"a string without an end")
        elif kind != "space":
            yield _Token(kind, text.lower() if kind == "word" else text, place, end)
        place = end


def _end_of_comment(sql: bytes, place: int) -> int:
    """Comments may be inside comments."""
    depth = 1
    while depth:
        part = _COMMENT_PART.search(sql, place)
        if part is None:
            raise _NotPassed(b"a comment without an end")
        depth += 1 if part[0] == b"/*" else -1
        place = part.end()
    return place


def _changes(tokens: list[_Token]) -> Iterator[tuple[_Token, bytes]]:
    """What is put in the place of which token, in their order."""
    words = [token.text if token.kind == "word" else b"" for token in tokens]
    first = next((word for word in words if word), b"")
    if first:
        _check_allowed(first, words, tokens)
    for number, token in enumerate(tokens):
        before = words[number - 1] if number else b""
        if first in MODES and (before, words[number]) == (b"read", b"write"):
            yield token, b"only"
        elif first in SETS and token.kind == "word" and any(part in token.text.lower() for part in KEPT):
            yield token, INSTEAD
        elif token.kind == "word" and token.text == b"set_config":
            name = _configured(tokens[number + 1 : number + 4])
            if any(part in name.text.lower() for part in KEPT):
                yield name, b"'" + INSTEAD + b"'"


def _check_allowed(first: bytes, words: list[bytes], tokens: list[_Token]) -> None:
    if first not in PASSED:
        raise _NotPassed(first)
    if first == b"alter" and b"system" in words[:2]:
        raise _NotPassed(b"alter system")
    if first == b"copy" and b"stdout" not in words:
        raise _NotPassed(b"copy")
    if b"update" in words and b"pg_settings" in words:
        raise _NotPassed(b"update pg_settings")
    if any(token.kind == "odd" and token.text[:1] in b"uU" for token in tokens):
        raise _NotPassed(b"an escaped name")


def _configured(after: list[_Token]) -> _Token:
    """The name in `set_config('name', …`; it has to stand there as it is."""
    kinds = [(token.kind, token.text) for token in after]
    if len(after) < 3 or kinds[0] != ("other", b"(") or kinds[2] != ("other", b","):
        raise _NotPassed(b"set_config")
    if after[1].kind != "string" or not after[1].text.startswith(b"'"):
        raise _NotPassed(b"set_config")
    return after[1]
