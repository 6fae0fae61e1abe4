"""The server-side scripts, in `lua/`. Each runs alone in the engine: one round trip, whole or not at all."""

import hashlib
import re
from importlib import resources

from recollect.stores.redis.wire import pack_arguments

KEYS = 4
"""Every script gets a session's four keys."""


class Script:
    """A script and how to call it: by its digest, or with its source when the engine does not know it."""

    def __init__(self, name: str) -> None:
        source = resources.files(__package__).joinpath("lua", f"{name}.lua").read_bytes()
        self.commands = frozenset(re.findall(r"redis\.p?call\('(\w+)'", source.decode()))
        """What it asks of the engine. The scripts themselves are the list."""
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        self._digest_head = pack_arguments(("EVALSHA", digest, KEYS))
        self._source_head = pack_arguments(("EVAL", source, KEYS))

    def by_digest(self, body: bytes, count: int) -> bytes:
        """The call with the packed keys and arguments in `body`, of which `count` are arguments."""
        return b"*%d\r\n%b%b" % (3 + KEYS + count, self._digest_head, body)

    def by_source(self, body: bytes, count: int) -> bytes:
        return b"*%d\r\n%b%b" % (3 + KEYS + count, self._source_head, body)


APPEND = Script("append")
READ = Script("read")
FORGET = Script("forget")
STATE = Script("state")
