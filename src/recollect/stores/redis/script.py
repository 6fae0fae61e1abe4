"""The server-side scripts, in `lua/`. Each runs alone in the engine: one round trip, whole or not at all."""

import hashlib
import re
from importlib import resources

from recollect.stores.redis.wire import pack_arguments

KEYS = 4
"""Keys of a session; every script gets them all."""


class Script:
    """A script and how to call it: by its digest, or with its source when the engine does not know it."""

    def __init__(self, source: bytes) -> None:
        self.commands = frozenset(re.findall(r"redis\.p?call\('(\w+)'", source.decode()))
        """The commands it runs, read from its source."""
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        self._digest = pack_arguments(("EVALSHA", digest))
        self._source = pack_arguments(("EVAL", source))
        self._digest_head = self._digest + pack_arguments((KEYS,))
        self._source_head = self._source + pack_arguments((KEYS,))

    def by_digest(self, body: bytes, count: int, sessions: int = 1) -> bytes:
        """The call; `body` holds the packed keys of one or more sessions, and `count` arguments."""
        if sessions == 1:
            return b"*%d\r\n%b%b" % (3 + KEYS + count, self._digest_head, body)
        return _spanning(self._digest, body, count, sessions)

    def by_source(self, body: bytes, count: int, sessions: int = 1) -> bytes:
        if sessions == 1:
            return b"*%d\r\n%b%b" % (3 + KEYS + count, self._source_head, body)
        return _spanning(self._source, body, count, sessions)


def _spanning(head: bytes, body: bytes, count: int, sessions: int) -> bytes:
    keys = KEYS * sessions
    return b"*%d\r\n%b%b%b" % (3 + keys + count, head, pack_arguments((keys,)), body)


def _lua(name: str) -> bytes:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_bytes()


def _many() -> bytes:
    """append.lua as a function that can stop before its first write, to check only."""
    line = b"-- up to here nothing is written\n"
    append = _lua("append")
    assert append.count(line) == 1
    function = append.replace(line, b"if checking then return 0 end\n")
    return _lua("many").replace(b"--[[append.lua]]", function)


APPEND = Script(_lua("append"))
MANY = Script(_many())
READ = Script(_lua("read"))
FIND = Script(_lua("find"))
FORGET = Script(_lua("forget"))
STATE = Script(_lua("state"))
RETRACT, REPLACE, ANNOTATE, FORK = (
    Script(_lua("common") + _lua(name)) for name in ("retract", "replace", "annotate", "fork")
)
RESTORE = Script(_lua("restore"))
SCRIPTS = (APPEND, MANY, READ, FIND, FORGET, STATE, RETRACT, REPLACE, ANNOTATE, FORK, RESTORE)
