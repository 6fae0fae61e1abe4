"""The HTML page in a real Chromium: in light, dark and on a phone, by keyboard, on paper, and with hostile content."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import typer
from playwright.async_api import Browser, expect

from recollect.commands.writing import write_reports
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.results import Result, Results
from recollect.verify.report import html
from recollect.verify.running.scenario import Scenario
from tests.chromium import executable
from tests.report.browser import AXE, CONTRASTS, PIXELS, chromium, shown
from tests.report.saved_runs import save_matrix, save_run

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(executable() is None, reason="no chromium on this machine: apt-get install chromium"),
]

BYTES_MAX = 500_000
AA_TEXT = 4.5
LOST_LIGHT = (0xD1, 0x1F, 0x2C)
HOSTILE = (
    '<img src=x onerror="document.title=`pwned`"></script><script>document.title="pwned"</script>'
    "\x00\u202e{{ 7*7 }}"
)
NOT_UNICODE = f"{HOSTILE}\ud800"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("run")
    results = save_matrix(folder)
    file = folder / "report.html"
    html.write(results, file)
    return results, file


async def test_a_hundred_cells_stay_small(matrix: tuple[Results, Path]) -> None:
    results, file = matrix
    assert len(results.results) == 100
    assert file.stat().st_size < BYTES_MAX
    text = file.read_text()
    ran = sum(result.verdict.status != "skipped" for result in results.results)
    assert text.count('<svg class="tl"') == ran
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("light", "light", 1200), ("dark", "dark", 1200), ("phone", "light", 390), ("phone-dark", "dark", 360)],
)
async def test_it_is_seen(
    browser: Browser, matrix: tuple[Results, Path], tmp_path: Path, name: str, scheme: str, width: int
) -> None:
    results, file = matrix
    found = findings(results)
    async with shown(browser, file, width=width, color_scheme=scheme) as page:
        picture = await page.screenshot(path=tmp_path / f"{name}.png")
        assert len(picture) > 20_000
        # The verdict comes first, and fits.
        assert (await page.locator("h1").inner_text()).startswith(f"{len(found)} findings: lost-tail")
        box = await page.locator("h1").bounding_box()
        assert box is not None
        assert box["y"] < 200
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.locator("article.finding").count() == len(found)
        first_finding = await page.locator("article.finding").first.bounding_box()
        assert first_finding is not None
        assert first_finding["y"] < 700, "the page opens with the findings"
        assert await page.locator("table:not(.steps) tbody tr").count() == 5
        assert await page.locator("table:not(.steps) th[scope=col]").count() == 13
        if width < 640:
            assert await page.evaluate("document.documentElement.scrollHeight") < 1_300 * len(found) + 2_500
        assert await page.locator("details.run").count() == 90
        assert await page.locator("details.run").first.get_attribute("data-status") == "violated"
        await page.evaluate("document.querySelectorAll('details').forEach((card) => { card.open = true; })")
        # Names beside a picture stand at the height of its lanes.
        first = page.locator(".time").first
        drawing = await first.locator("svg.tl").bounding_box()
        lanes = [await lane.bounding_box() for lane in await first.locator("li").all()]
        assert drawing is not None
        assert drawing["width"] > width * 0.6
        assert [round(lane["y"] - drawing["y"]) for lane in lanes if lane] == [30, 58, 86]
        worst = await page.evaluate(CONTRASTS)
        assert worst[0][0] >= AA_TEXT, worst
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(16, 19, 24)") == (scheme == "dark")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)], ids=["desktop", "dark", "phone"]
)
async def test_axe_has_no_objection(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text()
    scenario = Scenario(target="redis", engine="redis", policy="aof-always", fault="kill-engine")
    cells = (save_run(tmp_path / "losing", scenario, lost=3),)
    file = tmp_path / "report.html"
    html.write(Results(folder=str(tmp_path), results=cells), file)
    async with shown(browser, file, width=width, color_scheme=scheme) as page:
        await page.evaluate("document.querySelectorAll('details').forEach((card) => { card.open = true; })")
        await page.evaluate(script)
        assert await page.evaluate(AXE) == []


async def test_a_lost_message_is_red_on_the_screen(browser: Browser, tmp_path: Path) -> None:
    scenario = Scenario(target="redis", engine="redis", policy="aof-always", fault="kill-engine")
    cells = (
        save_run(tmp_path / "losing", scenario, lost=3),
        save_run(tmp_path / "keeping", scenario),
    )
    file = tmp_path / "report.html"
    html.write(Results(folder=str(tmp_path), results=cells), file)
    async with shown(browser, file, color_scheme="light") as page:
        await page.evaluate("document.querySelectorAll('details').forEach((card) => { card.open = true; })")
        red = []
        for drawing in await page.locator("svg.tl").all():
            picture = base64.b64encode(await drawing.screenshot()).decode()
            red.append(await page.evaluate(PIXELS, [picture, *LOST_LIGHT]))
        assert red[0] > 200
        assert red[1] == 0
        told = await page.locator("details.run").first.inner_text()
        assert "First lost message" in told
        assert "ms before kill-engine" in told
        assert f"recollect replay {tmp_path}/losing" in told


async def test_links_filters_and_the_keyboard(browser: Browser, matrix: tuple[Results, Path]) -> None:
    _, file = matrix
    async with shown(browser, file, color_scheme="light") as page:
        # The first stop of the keyboard leads past the matrix.
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the runs"
        # A box of the matrix opens its run.
        held = page.locator("a.box.held").first
        target = await held.get_attribute("href")
        assert not await page.locator(f"{target}").evaluate("card => card.open")
        await held.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_function("id => document.querySelector(id).open", arg=target)
        assert await page.evaluate("document.activeElement.closest('details').id") == (target or "")[1:]
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        assert "held" in (await held.text_content() or ""), "also for those who do not see its colour"
        # A filter shows one kind, and says how many.
        await page.locator("button.filter.held").click()
        shown_cards = await page.locator("details.run:visible").count()
        assert 0 < shown_cards < 90
        assert await page.locator("#said").text_content() == f"{shown_cards} runs shown"
        await page.locator("button.filter.held").click()
        await page.evaluate(
            "document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })"
        )
        assert await page.locator("details.run:visible").count() == 90


async def test_a_deep_link_opens_its_run(browser: Browser, matrix: tuple[Results, Path]) -> None:
    _, file = matrix
    async with shown(browser, file) as page:
        anchor = await page.locator("details.run.held").last.get_attribute("id")
        assert not await page.locator(f"#{anchor}").evaluate("card => card.open")
    page = await browser.new_page()
    await page.goto(f"{file.as_uri()}#{anchor}")
    assert await page.locator(f"#{anchor}").evaluate("card => card.open")
    await page.close()


async def test_words_are_defined_and_the_run_has_a_date(
    browser: Browser, matrix: tuple[Results, Path]
) -> None:
    results, _ = matrix
    dated = msgspec.structs.replace(results, date="2026-03-01 14:05")
    text = html.render(dated)
    assert "2026-03-01 14:05 · 90 cells" in text
    assert "<dt>lost-tail</dt><dd>After a fault, acknowledged messages missing" in text
    assert "<dt>exposed</dt>" not in text, "only words that the page uses"


async def test_copying_the_replay_command(browser: Browser, matrix: tuple[Results, Path]) -> None:
    _, file = matrix
    async with shown(browser, file, permissions=["clipboard-read", "clipboard-write"]) as page:
        run = page.locator("article.finding").first
        await run.locator("button.copy").click()
        await expect(run.locator("button.copy")).to_have_text("copied")
        assert await page.evaluate("navigator.clipboard.readText()") == await run.locator("code").inner_text()
        await expect(page.locator("#said")).to_have_text("command copied")


async def test_printed_it_shows_closed_runs_too(browser: Browser, matrix: tuple[Results, Path]) -> None:
    _, file = matrix
    async with shown(browser, file) as page:
        closed = await page.locator("details.run:not([open])").count()
        assert closed
        await page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert await page.locator("details.run:not([open])").count() == 0
        await page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert await page.locator("details.run:not([open])").count() == closed
        await page.emulate_media(media="print")
        assert await page.locator("button.copy").first.is_hidden()


async def test_hostile_content_stays_text(browser: Browser, tmp_path: Path) -> None:
    scenario = Scenario(target=HOSTILE, engine="redis", policy=HOSTILE, fault=HOSTILE, workload=HOSTILE)
    lost = save_run(
        tmp_path / "cell", scenario, lost=2, sessions=(HOSTILE, "<b>other</b>"), losing=(HOSTILE,)
    )
    results = Results(
        folder=str(tmp_path),
        results=(
            msgspec.structs.replace(lost, notes=(NOT_UNICODE,)),
            Result(scenario=scenario, verdict=Verdict(status="unknown", reason=NOT_UNICODE)),
            Result(scenario=scenario, verdict=Verdict(status="skipped", reason=NOT_UNICODE)),
        ),
    )
    assert lost.verdict.lost > 0
    file = tmp_path / "report.html"
    html.write(results, file)
    async with shown(browser, file) as page:
        assert await page.title() == "1 finding: lost-tail · recollect"
        assert await page.locator("img").count() == 0
        assert await page.locator("script").count() == 1
        await page.evaluate("document.querySelectorAll('details').forEach((card) => { card.open = true; })")
        body = await page.locator("body").inner_text()
        assert '<img src=x onerror="document.title=`pwned`">' in body
        assert "\\x00\\u202e{{ 7*7 }}\\ud800" in body
        assert "of session “<img" in body


async def test_a_script_that_is_not_ours_cannot_run(
    browser: Browser, matrix: tuple[Results, Path], tmp_path: Path
) -> None:
    """The second line of defence, if escaping ever failed: the page's policy names the one script it allows."""
    _, file = matrix
    broken = tmp_path / "broken.html"
    broken.write_text(file.read_text().replace("</main>", "<script>document.title='pwned'</script></main>"))
    page = await browser.new_page()
    await page.goto(broken.as_uri())
    assert "pwned" not in await page.title()
    await page.close()


async def test_a_place_that_cannot_be_written_is_told_after_the_run(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    results = Results(results=())
    with pytest.raises(typer.Exit) as ended:
        write_reports(results, tmp_path / "a-file" / "report.html", None, None)
    assert ended.value.exit_code == 2
    write_reports(results, tmp_path / "new" / "report.html", tmp_path / "new" / "report.xml", None)
    assert "Nothing could be concluded" in (tmp_path / "new" / "report.html").read_text()
