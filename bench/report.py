"""What a report costs: `python bench/report.py [--cells 100] [--run FOLDER]`.

Renders the page of a run (of a hundred cells, unless a saved run is given), and opens it in a real Chromium as a user
would: a fresh profile, from the address to the `load` event and to the first contentful paint. The page must open in
under a second and stay below 500 KB; the exit code says whether it does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.chromium import executable
from tests.report.browser import chromium
from tests.report.saved_runs import save_matrix

from recollect.verify.matrix.results import Results, load
from recollect.verify.report import html, junit

BYTES_MAX = 500_000
OPEN_S_MAX = 1.0
STEPS = 600
"""Events of a cell, as a run of half a second on a real engine has."""

TIMES = """() => new Promise((done) => {
  const ask = () => {
    const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    if (load && paint) done([load, paint.startTime]); else setTimeout(ask, 5);
  };
  ask();
})"""


async def opening_s(file: Path, times: int) -> list[tuple[float, float]]:
    """Load and first paint of each opening, in seconds."""
    found = []
    async with chromium() as browser:
        for _ in range(times):
            context = await browser.new_context(viewport={"width": 1200, "height": 900})
            page = await context.new_page()
            await page.goto(file.as_uri())
            load_ms, paint_ms = await page.evaluate(TIMES)
            found.append((load_ms / 1000, paint_ms / 1000))
            await context.close()
    return found


def rendered(results: Results, folder: Path) -> tuple[Path, float]:
    started = time.perf_counter()
    page = folder / "report.html"
    html.write(results, page)
    junit.write(results, folder / "report.xml")
    return page, time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--run", type=Path, help="a saved run, instead of a made-up one")
    parser.add_argument("--times", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = (
            load(options.run) if options.run else save_matrix(folder / "run", options.cells, steps=STEPS)
        )
        page, render_s = rendered(results, folder)
        size = page.stat().st_size
        print(f"{len(results.results)} cells: rendered in {render_s:.2f} s, {size / 1000:.0f} KB")
        if executable() is None:
            print("no chromium on this machine (apt-get install chromium): opening was not measured")
            return 1
        found = asyncio.run(opening_s(page, options.times))
    load_s = statistics.median(load for load, _ in found)
    paint_s = statistics.median(paint for _, paint in found)
    worst_s = max(load for load, _ in found)
    print(
        f"opens in {load_s:.3f} s (median of {len(found)}, worst {worst_s:.3f} s), painted after {paint_s:.3f} s"
    )
    return 0 if size < BYTES_MAX and load_s < OPEN_S_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
