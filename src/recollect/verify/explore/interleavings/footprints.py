"""What a step touches, and whether anybody could tell in which order two steps happened.

A footprint is a set of places, each read or written. Two steps that share no place, or only read it, commute: orders
that differ in nothing else count as one, and only one of them is tried. A request that is not understood counts as a
write to everything, so that no order is left out because of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

Footprint = frozenset[tuple[str, bool]]
"""What is touched, and whether it is written."""

EVERYTHING = "*"
"""All that the engine has."""
ORDER = "order of operations"
"""Read by the beginning of an operation and written by its end: the checkers see which came first."""
MEMORY = "memory"
"""What the store keeps in the process."""
OPERATION = "operation "
"""With its name: what one operation of a client keeps for itself, on its way through the store. All that runs on its
behalf counts as a write to it; a request that reaches the engine does not run there."""
UNSEEN = "unseen memory"
"""What callers share although it is not in the store's memory as we see it, such as a lock of the driver's."""
TIME = "time"
"""Written when time passes, read when a timer is set: the same timer, set later, goes off later."""
TURN = "turn of the loop"
"""Read by whatever runs in the process, and written when a task lets others go first: who may, depends on when."""

NOTHING: Footprint = frozenset()
WRITES_ALL: Footprint = frozenset({(EVERYTHING, True)})


def conflict(one: Footprint, other: Footprint) -> bool:
    """Whether anybody could tell in which order the two happened."""
    for place, write in one:
        for there, writes in other:
            if ORDER in (place, there):
                if place == there and write != writes:
                    return True
            elif (write or writes) and (place == there or _is_all(place, there)):
                return True
    return False


def _is_all(one: str, other: str) -> bool:
    return (one == EVERYTHING and _is_in_engine(other)) or (other == EVERYTHING and _is_in_engine(one))


def _is_in_engine(place: str) -> bool:
    return place not in (MEMORY, TIME, TURN) and not place.startswith(OPERATION)


def of_operations(names: Iterable[str]) -> Footprint:
    return frozenset((OPERATION + name, True) for name in names)


def operations_in(touched: Footprint) -> set[str]:
    return {place.removeprefix(OPERATION) for place, _ in touched if place.startswith(OPERATION)}


# ---- Redis

REDIS_SETUP = frozenset(
    b"HELLO AUTH SELECT CLIENT PING ECHO INFO CONFIG COMMAND SCRIPT READONLY TIME LATENCY ROLE".split()
)
"""Commands that open a connection, which affect nobody else."""
REDIS_ALWAYS_SETUP = frozenset(b"HELLO AUTH SELECT CLIENT READONLY".split())
"""Those that are about the connection whenever they come. A store may ask the others in between, and somebody else goes
on meanwhile."""

_READS = frozenset(
    b"GET STRLEN GETRANGE EXISTS TYPE TTL PTTL MGET LRANGE LLEN LINDEX LPOS HGET HMGET HGETALL HLEN HKEYS HVALS "
    b"HEXISTS SMEMBERS SISMEMBER SCARD ZRANGE ZREVRANGE ZRANGEBYSCORE ZCARD ZSCORE ZCOUNT XRANGE XREVRANGE XLEN "
    b"WATCH".split()
)
_WRITES = frozenset(
    b"SET SETEX PSETEX SETNX GETSET GETDEL GETEX APPEND SETRANGE INCR DECR INCRBY DECRBY INCRBYFLOAT EXPIRE PEXPIRE "
    b"EXPIREAT PEXPIREAT PERSIST DEL UNLINK TOUCH LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LTRIM LSET LREM LINSERT HSET "
    b"HSETNX HMSET HDEL HINCRBY SADD SREM SPOP ZADD ZREM ZINCRBY ZREMRANGEBYRANK ZREMRANGEBYSCORE XADD XDEL "
    b"XTRIM".split()
)
_KNOWN = _READS | _WRITES
_MANY_KEYS = frozenset(b"MGET DEL UNLINK EXISTS WATCH TOUCH".split())
_NO_KEYS = REDIS_SETUP | frozenset(b"MULTI UNWATCH DISCARD WAIT WAITAOF".split())


def of_redis(words: list[bytes]) -> Footprint:
    """What one command touches; EXEC is handled by the connection's dialogue."""
    name = words[0].upper()
    if name in _NO_KEYS:
        return NOTHING
    if name in (b"EVAL", b"EVALSHA") and len(words) > 2 and words[2].isdigit():
        return frozenset((_text(key), True) for key in words[3 : 3 + int(words[2])])
    if name not in _KNOWN or len(words) < 2:
        return WRITES_ALL
    keys = words[1:] if name in _MANY_KEYS else words[1:2]
    return frozenset((_text(key), name in _WRITES) for key in keys)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


# ---- SQL

ROWS = "rows"
"""Written by whoever changes a table, and seen by other writers only, until the transaction ends."""
_LOCAL = ("begin", "start", "set ", "show", "reset", "discard", "deallocate", "close", "savepoint", "release")
_ENDS = ("commit", "end", "rollback", "abort")
GIVES_BACK = "select pg_advisory_unlock_all()"
"""What asyncpg's pool sends when a connection comes back to it: no part of what the store does."""
_WRITING = re.compile(
    r"\b(insert|update|delete|merge|truncate|copy|create|drop|alter|notify|nextval|setval|lock)\b"
    r"|\bfor (no |key )?(update|share)"
)
_CALLS = re.compile(r"(\bas )?\b([a-z_][a-z0-9_.]*)\"?\s*\(")
"""A name before a bracket: a function, if it is not the name that a table gets (`AS k (name)`)."""
_PURE = frozenset(
    b"coalesce max min count sum avg greatest least nullif cast array array_agg json_agg jsonb_agg string_agg row "
    b"row_number json_build_object jsonb_build_object to_json to_jsonb json_object_agg lower upper length char_length "
    b"substring trim now any all in exists values over partition and or not on as using where from select with "
    b"distinct unnest generate_series rank lag lead first_value last_value abs floor ceil extract date_trunc "
    b"to_timestamp cardinality lateral join using filter within by having union except intersect limit "
    b"offset then else when between like is some interval numeric varchar char bit sha224 sha256 sha384 "
    b"sha512 md5 encode decode convert_from convert_to hashtext hashtextextended hashint4 hashint8 "
    b"hashint8extended int8send timestamptz_send substr left right position strpos replace split_part "
    b"concat concat_ws format quote_literal quote_ident ltrim rtrim btrim lpad rpad reverse repeat "
    b"starts_with regexp_replace regexp_match regexp_matches string_to_array array_to_string array_length "
    b"array_position array_append jsonb_array_elements json_array_elements jsonb_array_length "
    b"json_array_length jsonb_object_agg jsonb_build_array json_build_array jsonb_typeof jsonb_set "
    b"row_to_json bool_and bool_or dense_rank clock_timestamp statement_timestamp transaction_timestamp "
    b"date_part age make_interval power sqrt mod round sign exp ln current_setting current_schema "
    b"to_regclass to_char to_tsvector to_tsquery plainto_tsquery websearch_to_tsquery ts_rank "
    b"pg_is_in_recovery pg_walfile_name pg_current_wal_lsn pg_backend_pid version".split()
)
"""Functions that write nothing, and words that may stand before a bracket."""


@lru_cache(1000)
def of_sql(sql: str, *, in_transaction: bool) -> Footprint:
    """What a statement touches, as far as others can tell. Rows written inside a transaction are seen by nobody before
    its COMMIT; only other writers notice them, since they wait. A pool that resets a connection takes no locks: it
    gives them back."""
    words = " ".join(sql.lower().split())
    if words.startswith(GIVES_BACK):
        return frozenset({("locks", False)})
    if words.startswith(_LOCAL):
        return NOTHING
    found = {("db", False)}
    if "advisory" in words:
        found.add(("locks", True))
    if words.startswith(_ENDS):
        return frozenset({("db", True), (ROWS, True), ("locks", True)})
    if not words.startswith(("select", "with", "table", "values")) or _may_write(words):
        found.add((ROWS, True))
        if not in_transaction:
            found.add(("db", True))
    return frozenset(found)


@lru_cache(1000)
def of_sqlite(sql: str, *, in_transaction: bool, has_lock: bool = False) -> Footprint:
    """The same in SQLite, where whoever writes locks the whole file until the transaction ends, and a transaction keeps
    what it has read. Nobody notices what a transaction that has the lock does before it ends."""
    words = sql.lower()
    if ";" in words.rstrip("; "):  # a script
        return WRITES_ALL
    if words.startswith("release"):  # the outermost savepoint's is a COMMIT
        words = sql = "commit"
    if in_transaction and has_lock and not words.startswith((*_ENDS, "pragma")):
        return frozenset({("db", False)})
    if words.startswith(("begin immediate", "begin exclusive")):
        return frozenset({("db", False), (ROWS, True)})
    if words.startswith(("begin", "savepoint")):
        return NOTHING
    if words.startswith("pragma"):
        return WRITES_ALL if "=" in words or "(" in words else frozenset({("db", False)})
    return of_sql(sql, in_transaction=in_transaction) | {(ROWS, False)}


def _may_write(words: str) -> bool:
    """A query may write through a user's function: any function not known to be harmless counts as a write."""
    if _WRITING.search(words):
        return True
    return any(
        name.encode() not in _PURE and "advisory" not in name
        for is_named, name in _CALLS.findall(words)
        if not is_named
    )
