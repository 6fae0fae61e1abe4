"""What pytest wants to be said at the top: the plugin that runs pytest inside of tests.

Tests start hundreds of processes. Where the environment forbids bytecode files, as images of Python do, each of them
would compile everything it imports.
"""

import os
import sys

pytest_plugins = ["pytester"]

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
