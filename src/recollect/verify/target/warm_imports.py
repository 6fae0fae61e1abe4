"""Imports the target's modules in the fork server, once for all clients.

The fork server itself survives only an `ImportError`; anything else a module raises would end it. The worker imports
the module again, and reports what is wrong with it.

What was imported stays: the collector of a worker need not look at it, which would copy its memory into the worker.
"""

import contextlib
import gc
import importlib
import os

VARIABLE = "RECOLLECT_PRELOAD"

for _name in filter(None, os.environ.pop(VARIABLE, "").split(os.pathsep)):
    with contextlib.suppress(Exception, SystemExit):
        importlib.import_module(_name)

gc.collect()
gc.freeze()
