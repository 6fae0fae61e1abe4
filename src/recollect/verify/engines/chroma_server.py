"""Chroma's own server, started the fast way.

Its console script imports the whole client first, which takes three seconds. The server itself is in the compiled
module and is up in sixty milliseconds if only that is imported (under `python -S`, with the one folder it needs
on the path). That entry point is private to chromadb, so the version is pinned; if it is missing, the public one
is used.

Run as `python -I -S chroma_server.py SITE_PACKAGES run --path …`.
"""

from __future__ import annotations

import sys


def main() -> None:
    site, *arguments = sys.argv[1:]
    sys.path.append(site)
    try:
        from chromadb_rust_bindings import cli
    except ImportError:
        sys.argv = ["chroma", *arguments]
        from chromadb.cli.cli import app

        app()  # type: ignore[no-untyped-call]
    else:
        cli(["chroma", *arguments])


if __name__ == "__main__":
    main()
