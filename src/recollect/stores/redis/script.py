"""The server-side scripts, in `lua/`. Each runs alone in the engine: one round trip, whole or not at all."""

import hashlib
import re
from collections.abc import Sequence
from importlib import resources

from recollect.stores.redis.wire import pack_arguments

KEYS = 4
"""Keys of a session; every script gets them all."""


class Script:
    """A script and how to call it: by its digest, or with its source when the engine does not know it."""

    def __init__(self, source: bytes, options: Sequence[bytes] = (), *, joins: bool = False) -> None:
        """`options` come before a call's own arguments. One call of a script that `joins` does for several sessions
        what a call for each would."""
        self.joins = joins
        self.commands = frozenset(re.findall(r"(?:redis\.p?)?call\('(\w+)'", source.decode()))
        """The commands it runs, read from its source."""
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        self._by_digest, self._by_source = (
            pack_arguments(("EVALSHA", digest)),
            pack_arguments(("EVAL", source)),
        )
        self.source, self._options = source, pack_arguments(options)
        self._least = 3 + len(options)
        self._head_of_one = self._by_digest + pack_arguments((KEYS,))

    def with_options(self, options: Sequence[bytes]) -> "Script":
        return Script(self.source, options, joins=self.joins)

    def call(
        self, keys: bytes, arguments: bytes, count: int, sessions: int = 1, *, by_source: bool = False
    ) -> bytes:
        """The call: the packed keys of one or more sessions, and `count` packed arguments."""
        total = self._least + KEYS * sessions + count
        if sessions == 1 and not by_source:
            head = self._head_of_one
        else:
            head = (self._by_source if by_source else self._by_digest) + pack_arguments((KEYS * sessions,))
        return b"*%d\r\n%b%b%b%b" % (total, head, keys, self._options, arguments)


def _lua(name: str) -> bytes:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_bytes()


def _many() -> bytes:
    """append.lua as a function that can stop before its first write, to check only."""
    line = b"-- up to here nothing is written\n"
    append = _lua("append")
    assert append.count(line) == 1
    function = append.replace(line, b"if checking then return 0 end\n")
    return _lua("many").replace(b"--[[append.lua]]", function)


APPEND = Script(_lua("appends").replace(b"--[[append.lua]]", _lua("append")), joins=True)
MANY = Script(_many())
READ = Script(_lua("read"))
FIND = Script(_lua("find"))
FORGET = Script(_lua("forget"))
STATE = Script(_lua("state"))
RETRACT, REPLACE, ANNOTATE, FORK = (
    Script(_lua("common") + _lua(name)) for name in ("retract", "replace", "annotate", "fork")
)
RESTORE = Script(_lua("restore"))
ERASED = Script(_lua("erased"))
SCRIPTS = (APPEND, MANY, READ, FIND, FORGET, STATE, RETRACT, REPLACE, ANNOTATE, FORK, RESTORE, ERASED)
