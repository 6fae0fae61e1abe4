"""The documentation site: `make docs`.

mkdocs wants all pages in one folder, and ours are in docs/ and in the root. So they are copied to build/docs-source,
with the links between the two changed; links to folders of the repository become plain text. The one script that the
theme would fetch is ours instead: a reader needs no network.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "build" / "docs-source"
SITE = PROJECT / "build" / "site"
FETCHED = "https://unpkg.com/iframe-worker/shim"
ROOT_PAGES = (
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"),
    *("CONTRIBUTING.md", "SECURITY.md"),
)
LAST_IN_SEARCH = "---\nsearch: {boost: 0.1}\n---\n"
"""What the changelog begins with: it has every word, and would be found before the page that explains it."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def place_of(page: PurePosixPath) -> PurePosixPath | None:
    """Where a file of the repository is on the site; None if it is not there."""
    if page == PurePosixPath("README.md"):
        return PurePosixPath("index.md")
    if page.parts and page.parts[0] == "docs":
        return page.relative_to("docs")
    return page if str(page) in ROOT_PAGES else None


def rewritten(text: str, page: PurePosixPath) -> str:
    """A page's text with its links as they are on the site."""
    here = place_of(page)
    assert here is not None

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        file, hash_sign, anchor = target.partition("#")
        if not file or ":" in file:
            return found.group()
        there = place_of(_normal(page.parent / file))
        if there is None:
            return words
        up = "../" * (len(here.parts) - 1)
        return f"{mark}[{words}]({up}{there}{hash_sign}{anchor})"

    return LINK.sub(link, text)


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def pages() -> dict[PurePosixPath, PurePosixPath]:
    """Pages of the repository, and where each is on the site."""
    found = [PurePosixPath(name) for name in ROOT_PAGES]
    docs = (PROJECT / "docs").rglob("*.md")
    found += [PurePosixPath(page.relative_to(PROJECT).as_posix()) for page in sorted(docs)]
    return {page: place for page in found if (place := place_of(page)) is not None}


def stage(folder: Path) -> None:
    """Everything that the site is made of."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PROJECT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    for page, place in pages().items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        head = LAST_IN_SEARCH if page.name == "CHANGELOG.md" else ""
        target.write_text(head + rewritten((PROJECT / page).read_text(), page))


def make_local(site: Path) -> None:
    """No page fetches anything from elsewhere."""
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        page.write_text(page.read_text().replace(FETCHED, f"{up}assets/file-worker.js"))


def main() -> int:
    menu = (PROJECT / "mkdocs.yml").read_text()
    if missing := [str(place) for place in pages().values() if str(place) not in menu]:
        print(f"not in the menu: {', '.join(missing)}; add them to nav in mkdocs.yml", file=sys.stderr)
        return 1
    stage(SOURCE)
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme advertises its successor at every build
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=PROJECT, env=quiet, check=False
    )
    if done.returncode == 0:
        make_local(SITE)
        (SITE / "404.html").unlink()  # its style and its links are right only at the root of a host
        print(SITE / "index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
