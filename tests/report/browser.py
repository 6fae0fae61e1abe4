"""A real Chromium for the page's tests, and what is asked of a page in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from tests.chromium import ARGUMENTS, executable

# The contrast of every visible text with what is painted behind it, worst first; WCAG's formula.
CONTRASTS = """() => {
  const parse = (text) => {
    const part = text.match(/[\\d.]+/g).map(Number);
    return { r: part[0], g: part[1], b: part[2], a: part.length > 3 ? part[3] : 1 };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a),
    b: top.b * top.a + under.b * (1 - top.a), a: 1 });
  const light = ({ r, g, b }) => {
    const part = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    const ground = behind(element);
    const [one, two] = [light(over(ink, ground)), light(ground)].sort((a, b) => b - a);
    found.push([(one + 0.05) / (two + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 5);
}"""

# What axe-core objects to, with the first element of each.
AXE = """async () => {
  const found = await axe.run();
  return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes[0].html}`);
}"""

# How many pixels of a picture are close to a colour.
PIXELS = """async ([picture, r, g, b]) => {
  const image = new Image();
  image.src = "data:image/png;base64," + picture;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const data = canvas.getImageData(0, 0, image.width, image.height).data;
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12;
  return count;
}"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def shown(browser: Browser, file: Path, *, width: int = 1200, **more: Any) -> AsyncIterator[Page]:
    """The page, opened; fails if it wrote an error to the console or asked for anything but itself."""
    complaints: list[str] = []
    requests: list[str] = []
    context = await browser.new_context(viewport={"width": width, "height": 900}, **more)
    try:
        page = await context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        await page.goto(file.as_uri())
        yield page
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    finally:
        await context.close()
