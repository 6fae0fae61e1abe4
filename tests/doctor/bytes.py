"""What a folder holds, byte for byte: names, sizes, contents, times of the last change."""

import hashlib
from pathlib import Path


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_socket()
    }
