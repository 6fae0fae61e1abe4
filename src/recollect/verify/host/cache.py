"""What is kept between runs: compiled libraries, an empty PostgreSQL cluster, other releases of Chroma."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "recollect"
