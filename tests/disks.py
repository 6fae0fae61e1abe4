"""What the disk under the tests' own files gives: less in a container, whose own layer forgets."""

import tempfile
from pathlib import Path

from recollect import Durability
from recollect.filesystems import mount_under

_mount = mount_under(Path(tempfile.gettempdir()))

BEST = Durability.FSYNCED if _mount is None or _mount.goes_with is None else Durability.WRITTEN
