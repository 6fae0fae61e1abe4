"""A password that is easy to find, however it was cut, and a search through everything that was said and written."""

from pathlib import Path
from urllib.parse import quote

MARK = "xkanari"
RAW = f"{MARK}A#{MARK}B/{MARK}C?{MARK}D@{MARK}E"
"""Every part between characters that an address is split at has the mark."""
ENCODED = quote(RAW, safe="")
PLAIN = f"{MARK}plain"

PLACES = (
    "redis://app:{}@127.0.0.1:1/15",
    "redis://:{}@127.0.0.1:1/15",
    "postgresql://app:{}@127.0.0.1:1/memory",
    "postgresql://app:{}@127.0.0.1:1,127.0.0.1:2/memory",
    "postgresql://127.0.0.1:1/memory?user=app&password={}",
    "http://app:{}@127.0.0.1:1",
    "unix://app:{}@/nowhere.sock?db=15",
    "mysql://app:{}@127.0.0.1/memory",
    "redis:/:{}@127.0.0.1:1/15",
    "app:{}@127.0.0.1",
    "host=127.0.0.1 port=1 password={}",
)
PASSWORDS = (PLAIN, ENCODED, RAW)
ADDRESSES = tuple(place.format(password) for place in PLACES for password in PASSWORDS)


def traces(text: str) -> list[str]:
    return [line for line in text.splitlines() if MARK in line.lower()]


def in_files(folder: Path) -> list[str]:
    """Every file below whose name or content has the mark."""
    found = []
    for file in sorted(folder.rglob("*")):
        content = file.read_bytes().decode("utf-8", "replace") if file.is_file() else ""
        found += [f"{file}: {line}" for line in traces(f"{file.relative_to(folder)}\n{content}")]
    return found
