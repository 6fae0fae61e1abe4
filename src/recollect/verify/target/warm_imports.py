"""Imports the target's modules in the fork server, once for all clients.

The fork server itself lets only an `ImportError` pass; whatever else a module raises would end it. What is wrong with a
module is for the worker to say, which imports it again.
"""

import contextlib
import importlib
import os

VARIABLE = "RECOLLECT_PRELOAD"

for _name in filter(None, os.environ.pop(VARIABLE, "").split(os.pathsep)):
    with contextlib.suppress(Exception, SystemExit):
        importlib.import_module(_name)
