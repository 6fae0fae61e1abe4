"""A module that nobody survives importing."""

import os

os._exit(5)
