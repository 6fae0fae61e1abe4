"""A second release of Chroma, without downloading one: the installed files under another version number."""

from __future__ import annotations

from pathlib import Path

from recollect.verify.providers import wheel


def other_chroma(cache: Path, version: str) -> Path:
    """Puts it where `pip install --target` would; `cache` is XDG_CACHE_HOME."""
    (installed,) = (build for build in wheel.builds("chroma") if not build.by_version)
    folder = cache / "recollect" / "chroma" / version
    described = folder / f"chromadb-{version}.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: chromadb\nVersion: {version}\n")
    site = Path(installed.location).parent
    for package in ("chromadb", "chromadb_rust_bindings"):
        (folder / package).symlink_to(site / package)
    return folder
