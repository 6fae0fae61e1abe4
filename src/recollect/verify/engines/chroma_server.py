"""Chroma's own server, started the short way.

Its console script imports the whole client first, three seconds in all; the server is in the compiled module
and is up in sixty milliseconds when only that is imported (under `python -S`, with the one folder it needs
put on the path). That entry is private to chromadb: the version is pinned, and where it is missing the public
way is taken.

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
