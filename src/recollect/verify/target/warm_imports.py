"""Imports what every client needs in the fork server, once for all of them, and what the target's modules import; those
are in `own_modules`.

The fork server itself survives only an `ImportError`; anything else a module raises would end it. The worker imports
the module again, and reports what is wrong with it.

A library may start a thread, and Python waits for threads before it ends: the fork server does not, or it would stay
for ever. Workers are forked without the thread.

Then it does once what every client would do first and what Python keeps: it compiles the regular expressions, finds the
distributions and starts OpenSSL: a quarter of the time that a client takes to start.

What was imported stays: the collector waits until that is done, and the one of a worker need not look at it, which
would copy its memory into the worker.
"""

import contextlib
import gc
import importlib
import importlib.metadata
import inspect
import os
import ssl
import threading

from recollect.secret import Scrubber
from recollect.verify.target.own_modules import MARK, PRELOADED, SEPARATOR, Library, libraries_of

OURS = ("recollect.verify.target.worker", "recollect.verify.builtin")


def _end_at_once(server: int) -> None:
    if os.getpid() == server:  # not a worker
        os._exit(0)


if PRELOADED in os.environ:  # this is the fork server
    threading._register_atexit(_end_at_once, os.getpid())  # type: ignore[attr-defined]

gc.disable()
for _name in OURS:
    importlib.import_module(_name)

for _name in filter(None, os.environ.pop(PRELOADED, "").split(SEPARATOR)):
    _own = _name.removesuffix(MARK)
    for _library in [Library(_name, ())] if _own == _name else libraries_of(_own):
        with contextlib.suppress(Exception, SystemExit):
            __import__(_library.module, fromlist=_library.names)

Scrubber(["redis://user:password@host:1/0"])
inspect.signature(str.join)
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    importlib.metadata.version("redis")
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

gc.collect()
gc.freeze()
gc.enable()
