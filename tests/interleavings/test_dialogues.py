"""What requests are, what they touch, and when their replies are whole."""

from __future__ import annotations

import struct

import pytest

from recollect.stores.postgres.hosts import _TIMELINE
from recollect.stores.postgres.schema import APPEND, APPEND_ONE, HISTORY, SESSION
from recollect.verify.explore.interleavings.dialogues import (
    Dialogue,
    PgDialogue,
    RespDialogue,
    carried,
    commands_in,
    dialogue,
)
from recollect.verify.explore.interleavings.footprints import NOTHING, WRITES_ALL, conflict, of_sql
from recollect.verify.target.marked_text import mark


def resp(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words)


@pytest.mark.parametrize(
    ("words", "touched"),
    [
        (("GET", "k"), {("k", False)}),
        (("SET", "k", "v"), {("k", True)}),
        (("DEL", "k", "l"), {("k", True), ("l", True)}),
        (("EVALSHA", "f00", "2", "k", "l", "x"), {("k", True), ("l", True)}),
        (("PING",), set()),
        (("RENAME", "k", "l"), set(WRITES_ALL)),
        (("MY.MODULE", "k"), set(WRITES_ALL)),
        (("FLUSHALL",), set(WRITES_ALL)),
    ],
)
def test_what_a_command_touches(words: tuple[str, ...], touched: set[tuple[str, bool]]) -> None:
    assert RespDialogue().request(resp(*words)).footprint == touched


def test_what_is_queued_happens_at_exec() -> None:
    spoken = RespDialogue()
    assert spoken.request(resp("WATCH", "w")).footprint == {("w", False)}
    assert spoken.request(resp("MULTI")).footprint == NOTHING
    assert spoken.request(resp("SET", "k", "v")).footprint == NOTHING
    assert spoken.request(resp("EXEC")).footprint == {("k", True), ("w", False)}
    assert spoken.request(resp("GET", "k")).footprint == {("k", False)}


@pytest.mark.parametrize("word", ["plain", "", "ends a line\r\n", "\r\n*1\r\n$4\r\nPING\r\n", "ümlaut"])
def test_commands_are_read_whatever_their_words_contain(word: str) -> None:
    asked = resp("SET", "k", word) + resp("GET", "k")
    assert commands_in(asked) == ([b"SET", b"k", word.encode()], [b"GET", b"k"])
    spoken = RespDialogue()
    assert [length for length in range(len(asked) + 1) if spoken.whole(asked[:length])] == [
        len(resp("SET", "k", word)),
        len(asked),
    ]


@pytest.mark.parametrize(
    "data", [b"*1\r\n$3\r\nGET", b"*1\r\n$3\r\nGETTER\r\n", b"*0\r\n", b"hello\r\n", b""]
)
def test_what_is_no_command_is_none(data: bytes) -> None:
    assert commands_in(data) == ()


def test_what_opens_a_connection_is_known_before_it_is_sent() -> None:
    spoken = RespDialogue()
    assert spoken.is_setup(resp("HELLO", "3") + resp("CLIENT", "SETINFO", "lib-name", "x"))
    assert not spoken.is_setup(resp("HELLO", "3") + resp("GET", "k"))
    assert not spoken.is_setup(b"hello")
    assert spoken.reply(b"")  # nothing was sent, so no reply is owed


def test_what_a_store_asks_in_between_does_not_open_its_connection() -> None:
    spoken = RespDialogue()
    assert spoken.request(resp("PING")).setup
    assert not spoken.request(resp("GET", "k")).setup
    assert not spoken.is_setup(resp("PING"))
    assert not spoken.request(resp("TIME")).setup
    assert spoken.request(resp("CLIENT", "SETNAME", "n")).setup


def test_attributes_belong_to_the_reply_behind_them() -> None:
    spoken = RespDialogue()
    spoken.request(resp("GET", "k"))
    assert not spoken.reply(b"|1\r\n+ttl\r\n:60\r\n")
    assert spoken.reply(b"*2\r\n%1\r\n+a\r\n*0\r\n$-1\r\n")


def test_a_reply_is_whole_when_every_command_has_its_own() -> None:
    spoken = RespDialogue()
    spoken.request(resp("GET", "k") + resp("LRANGE", "l", "0", "-1"))
    assert not spoken.reply(b"$3\r\nab")
    assert not spoken.reply(b"c\r\n*2\r\n$1\r\na\r\n")
    assert not spoken.reply(b">2\r\n+push\r\n+ed\r\n"[:0])
    assert spoken.reply(b"$-1\r\n")


def test_a_push_is_no_answer() -> None:
    spoken = RespDialogue()
    spoken.request(resp("GET", "k"))
    assert not spoken.reply(b">2\r\n+invalidate\r\n+k\r\n")
    assert spoken.reply(b"%1\r\n+a\r\n:1\r\n")


def test_what_is_no_protocol_touches_everything() -> None:
    assert RespDialogue().request(b"hello").footprint == WRITES_ALL
    assert Dialogue().request(b"hello").footprint == WRITES_ALL
    assert not dialogue("chroma").framed


def pg(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def started() -> PgDialogue:
    spoken = PgDialogue()
    spoken.request(struct.pack("!ii", 8, 196608))
    assert not spoken.reply(pg(b"R", struct.pack("!i", 0)) + pg(b"K", struct.pack("!ii", 77, 1)))
    assert spoken.reply(pg(b"Z", b"I"))
    return spoken


def test_a_connection_of_postgres_is_opened() -> None:
    assert started().backend == 77


def test_a_prepared_statement_is_known_when_it_is_executed() -> None:
    spoken = started()
    data = (
        pg(b"P", b"one\0SELECT body FROM chat\0\0\0")
        + pg(b"B", b"\0one\0\0\0\0\0\0\0")
        + pg(b"E", b"\0\0\0\0\0")
    )
    assert not spoken.whole(data)
    data += pg(b"S", b"")
    assert spoken.whole(data)
    copied = spoken.copy()
    assert copied.request(data) == spoken.request(data)
    assert spoken.request(data).label == "SELECT body FROM chat"
    assert not spoken.reply(pg(b"C", b"SELECT 1\0"))


@pytest.mark.parametrize(
    ("sql", "writes"),
    [
        ("SELECT body FROM chat WHERE session = $1", False),
        ("SELECT coalesce(max(place), 0) + 1 FROM chat", False),
        ("SELECT append_turn($1, $2)", True),
        ("SELECT * FROM chat FOR UPDATE", True),
        ("WITH new AS (INSERT INTO chat VALUES (1) RETURNING 1) SELECT 1", True),
        ("UPDATE chat SET body = $1", True),
        ("CALL anything()", True),
        ('SELECT "Append turn"($1)', True),
        ("SELECT k.name FROM unnest($1::text[]) AS k (name) JOIN LATERAL (SELECT 1) m ON true", False),
        ("SELECT append_turn(k.name) FROM unnest($1::text[]) AS k (name)", True),
        (HISTORY, False),
        (SESSION, False),
        (_TIMELINE, False),
        (APPEND, True),
        (APPEND_ONE[False, True], True),
    ],
)
def test_a_query_writes_unless_it_is_known_not_to(sql: str, writes: bool) -> None:
    assert any(write for _, write in of_sql(sql, in_transaction=False)) == writes


def test_a_request_to_give_up_names_whose() -> None:
    data = struct.pack("!iiii", 16, 80877102, 4711, 99)
    assert PgDialogue().request(data).cancels == 4711
    assert PgDialogue().request(struct.pack("!ii", 8, 80877103)).cancels is None
    assert PgDialogue().request(struct.pack("!ii", 8, 196608)).cancels is None


def test_what_others_can_tell_of_a_transaction() -> None:
    read = of_sql("SELECT body FROM chat", in_transaction=False)
    write = of_sql("INSERT INTO chat VALUES (1)", in_transaction=True)
    commit = of_sql("COMMIT", in_transaction=True)
    assert not conflict(read, write), "nobody sees what is not committed"
    assert conflict(read, commit)
    assert conflict(write, write), "writers wait for each other"
    assert of_sql("BEGIN", in_transaction=False) == NOTHING


def test_the_messages_of_a_request_are_told() -> None:
    said = mark(5003, "message 3").encode() + mark(5004, "message 4").encode()
    assert carried(said, b"", frozenset({("k", True)})) == "writes m3 m4"
    assert carried(b"", said, frozenset({("k", False)})) == "reads m3 m4"
    assert carried(b"", b"", frozenset({("k", False)})) == "reads nothing"
    assert carried(b"", b"", NOTHING) == ""


def test_a_connection_with_an_open_transaction_is_not_at_rest() -> None:
    redis = RespDialogue()
    assert redis.is_at_rest
    redis.request(resp("WATCH", "k"))
    assert not redis.is_at_rest
    redis.request(resp("MULTI"))
    redis.request(resp("EXEC"))
    assert redis.is_at_rest
    postgres = started()
    for status, rests in ((b"T", False), (b"E", False), (b"I", True)):
        postgres.request(pg(b"Q", b"select 1\0"))
        assert postgres.reply(pg(b"Z", status))
        assert postgres.is_at_rest is rests
