"""The pictures of the README: a finding in the terminal and the page of the same run. `python -m tools.pictures`

Runs the store that the README shows, as the README says, on a real Redis; so they change only with what is printed.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PROJECT = Path(__file__).parent.parent
ASSETS = PROJECT / "docs" / "assets"
COLUMNS = 84
COMMAND = "recollect verify memory:make_store --engine redis --policy aof-always --fault none --seed 7"


def run(folder: Path) -> str:
    """What the command prints from its first finding on; the page is `page.html`."""
    code = re.search(r"```python\n(# memory\.py\n.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    (folder / "memory.py").write_text(code.group(1))
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", *COMMAND.split(), "--html", "page.html"]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 1, done.stdout.decode()
    printed = done.stdout.decode()
    finding = re.search(r"^[^\n]*✗[^\n]*Finding 1", printed, re.MULTILINE)
    assert finding is not None, printed
    assert "confirmed 3 of 3" in printed, f"too busy a machine for a picture:\n{printed}"
    told = printed[finding.start() :]
    end = re.search(r"^[^\n]*seen in \d", told, re.MULTILINE)
    return told[: end.start()] if end else told


def draw(told: str, file: Path) -> None:
    """As an SVG that asks for no font from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(Text(f"$ {COMMAND}"))
    console.print(Text.from_ansi(told))
    svg = console.export_svg(title="recollect verify")
    file.write_text(re.sub(r"@font-face\s*\{[^}]*\}\s*", "", svg))


def photograph(page: Path, file: Path) -> None:
    from playwright.sync_api import sync_playwright
    from tests.chromium import ARGUMENTS, executable

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        shown = browser.new_page(viewport={"width": 1000, "height": 720})
        shown.goto(page.as_uri())
        shown.screenshot(path=file)
        browser.close()


def main() -> int:
    ASSETS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recollect-pictures-") as name:
        folder = Path(name)
        draw(run(folder), ASSETS / "finding.svg")
        photograph(folder / "page.html", ASSETS / "page.png")
    for file in (ASSETS / "finding.svg", ASSETS / "page.png"):
        print(f"{file.relative_to(PROJECT)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
