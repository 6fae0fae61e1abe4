"""For commands about a memory that is already there: opening a mistyped SQLite address would make an empty one."""

from __future__ import annotations

from recollect.secret import scheme_of


def require_file(url: str) -> None:
    """Raises `CannotOpen` if it is the address of a SQLite file that does not exist."""
    if scheme_of(url) == "sqlite":
        from recollect.audit.sqlite import file_of

        file_of(url)
