"""The page in a real browser, on a real service that is really killed."""

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from recollect.verify.suite.service import Service, ServiceFailed
from tests.chat.conftest import OpenBrowser, memories, open_page, say
from tests.disks import BEST

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="session")]

Start = Callable[..., Service]
NAME = "The user's name is Xiao Li."
REMEMBERED = "✓ remembered, " + {"fsynced": "saved to disk", "written": "saved"}[BEST.value]
NOT_KNOWN = "? not known whether it was remembered; trying again is safe"


async def test_the_name_is_there_after_the_browser_is_closed_and_the_service_killed(
    chat_service: Start, open_browser: OpenBrowser
) -> None:
    service = chat_service()
    browser = await open_browser()
    page = await open_page(browser, service)
    assert await page.locator("#engine").inner_text() == "stand-in replies (rules, no model)"
    assert re.search("[Ss]urvives a crash", await page.locator("#store").get_attribute("title") or "")
    assert await say(page, "Hello! My name is Xiao Li.") == f"Noted: {NAME}"
    assert await page.locator(".said .note").inner_text() == REMEMBERED
    assert await memories(page) == [NAME]
    await browser.close()
    service.kill()
    service.restart()
    page = await open_page(await open_browser(), service)
    assert await memories(page) == [NAME]
    assert await page.locator(".bubble").all_inner_texts() == ["Hello! My name is Xiao Li.", f"Noted: {NAME}"]
    assert await say(page, "what is my name?") == f"From memory: {NAME}"
    assert "used 1 memory" in await page.locator(".reply details").inner_text()
    assert NAME in await page.locator(".reply details").inner_text()
    assert await page.locator("#banner").is_hidden()


async def test_killed_at_the_moment_of_the_answer_it_is_still_there(
    chat_service: Start, browser: Browser
) -> None:
    service = chat_service()
    page = await open_page(await browser.new_context(), service)
    with service.kill_after_response("POST", "/chat"):
        await say(page, "My name is Xiao Li.")
    assert await page.locator(".said .note").inner_text() == REMEMBERED
    await asyncio.to_thread(service.restart)
    assert await say(page, "what is my name?") == f"From memory: {NAME}"


async def test_a_wiped_volume_is_said_on_the_page(chat_service: Start, open_browser: OpenBrowser) -> None:
    service = chat_service()
    browser = await open_browser()
    page = await open_page(browser, service)
    await say(page, "My name is Xiao Li.")
    await browser.close()
    service.kill()
    service.wipe()
    service.restart()
    page = await open_page(await open_browser(), service)
    await expect(page.locator("#banner")).to_contain_text("This is not the memory it was.")
    assert await say(page, "what is my name?") == "I have no memory of that."


async def test_a_volume_wiped_under_the_running_service_is_said_on_the_page(
    chat_service: Start, browser: Browser
) -> None:
    service = chat_service()
    page = await open_page(await browser.new_context(), service)
    await say(page, "My name is Xiao Li.")
    for file in service.data.iterdir():
        file.unlink()
    await page.fill("#text", "I have a cat.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#banner")).to_contain_text("The memory is missing.")
    await expect(page.locator(".said .note").last).to_contain_text("✗ not remembered")
    assert str(service.data) not in await page.inner_text("body")
    await expect(page.locator("#banner")).to_contain_text("bring its data back")
    for struck in (".note.remembered", "#memories p"):
        style = f"getComputedStyle(document.querySelector('{struck}')).textDecorationLine"
        assert await page.evaluate(style) == "line-through"


async def test_with_a_witness_the_service_refuses_a_wiped_volume(chat_service: Start, tmp_path: Path) -> None:
    service = chat_service("--witness", str(tmp_path / "witness.json"))
    httpx.post(f"{service.base_url}/chat", json={"user": "u", "message": "my name is Xiao Li"})
    service.stop()
    service.wipe()
    with pytest.raises(ServiceFailed, match="this is another store"):
        service.start()
    assert "Traceback" not in service.log


async def test_a_lost_answer_and_a_retry_do_not_duplicate(chat_service: Start, browser: Browser) -> None:
    service = chat_service()
    page = await open_page(await browser.new_context(), service, "?user=xiao")
    with service.drop_response("POST", "/chat"):
        await page.fill("#text", "My name is Xiao Li.")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="send again").wait_for()
    assert (await page.locator(".said .note").inner_text()).startswith(NOT_KNOWN)
    await page.get_by_role("button", name="send again").click()
    await page.locator(".said .note.remembered[data-settled]").wait_for()
    assert await memories(page) == [NAME]
    history = httpx.get(f"{service.base_url}/history", params={"user": "xiao", "session": "main"}).json()
    assert [item["role"] for item in history] == ["user", "assistant"]


async def test_two_tabs_and_two_services_on_one_memory(chat_service: Start, browser: Browser) -> None:
    one = chat_service()
    two = chat_service(data=one.data)
    context = await browser.new_context()
    left = await open_page(context, one, "?user=xiao&session=left")
    right = await open_page(context, two, "?user=xiao&session=right")
    for number in range(3):
        await asyncio.gather(
            say(left, f"My left number{number} is ready."), say(right, f"My right number{number} is ready.")
        )
    await say(left, "My name is Xiao Li.")
    assert await say(right, "what is my name?") == f"From memory: {NAME}"
    one.kill()
    answer = await say(right, "what is my left number1?")
    assert answer.startswith("From memory: The user's left number1 is ready.")
    expected = {f"The user's {side} number{n} is ready." for side in ("left", "right") for n in range(3)}
    assert set(await memories(right)) == expected | {NAME}
    assert len(await memories(right)) == 7


async def test_two_workers_of_one_service(chat_service: Start, browser: Browser) -> None:
    service = chat_service("--workers", "2")
    page = await open_page(await browser.new_context(), service)
    await say(page, "My name is Xiao Li.")
    for _ in range(4):
        assert await say(page, "what is my name?") == f"From memory: {NAME}"


async def test_messages_are_text(lasting_service: Service, browser: Browser) -> None:
    page = await open_page(await browser.new_context(), lasting_service)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> my name is <b>Eve</b>"
    await say(page, hostile)
    assert await page.locator(".said .bubble").inner_text() == hostile
    assert await page.locator(".bubble img, .bubble script, .bubble b, #memories b").count() == 0
    assert await memories(page) == ["The user's name is <b>Eve</b>."]
    assert dialogs == []


async def test_forgetting_and_everything_else_by_keyboard(lasting_service: Service, browser: Browser) -> None:
    page = await open_page(await browser.new_context(), lasting_service)
    await say(page, "My name is Xiao Li. I have a cat.")
    assert await memories(page) == ["The user has a cat.", NAME]
    assert await page.evaluate("document.activeElement.id") == "text"
    for _ in range(20):
        await page.keyboard.press("Tab")
        focused = await page.evaluate("document.activeElement.getAttribute('aria-label')")
        if focused == f"Forget: {NAME}":
            break
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (focused, outline) == (f"Forget: {NAME}", "solid")
    await page.keyboard.press("Enter")
    await expect(page.locator("#memories li p")).to_have_text(["The user has a cat."])
    assert await say(page, "what is my name?") == "I have no memory of that."


async def test_on_a_phone_and_in_the_dark(lasting_service: Service, browser: Browser) -> None:
    phone = await browser.new_context(
        viewport={"width": 360, "height": 700}, is_mobile=True, has_touch=True, color_scheme="dark"
    )
    page = await open_page(phone, lasting_service)
    await say(page, "My name is Xiao Li, and a-very-long-word-" + "x" * 300)
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(16, 19, 26)"
    assert not await page.locator("#memories").is_visible()
    await page.get_by_role("button", name="What I remember").tap()
    await expect(page.locator("#memories li p").first).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#memories")).not_to_be_visible()


async def test_a_service_that_is_gone_is_said_and_found_again(chat_service: Start, browser: Browser) -> None:
    service = chat_service()
    low = await browser.new_context(viewport={"width": 1000, "height": 420})
    page = await open_page(low, service)
    await say(page, "Hello!")
    await expect(page.locator("#store")).to_be_visible()
    service.kill()
    await page.fill("#text", "My name is Xiao Li.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#banner")).to_contain_text("cannot be reached")
    await expect(page.get_by_role("button", name="send again")).to_be_in_viewport()
    assert "lost" not in await page.locator("#banner").inner_text()
    await expect(page.locator("#store")).to_be_hidden()  # "saved to disk" would be a promise
    assert (await page.locator(".said .note").last.inner_text()).startswith(NOT_KNOWN)
    await asyncio.to_thread(service.restart)
    await page.get_by_role("button", name="send again").click()
    await page.locator(".said .note.remembered[data-settled]").nth(1).wait_for()
    assert await memories(page) == [NAME]
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(page.locator("#store")).to_be_visible()


async def test_what_was_not_answered_outlives_a_reload(chat_service: Start, browser: Browser) -> None:
    service = chat_service()
    page = await open_page(await browser.new_context(), service, "?user=xiao")
    service.kill()
    await page.fill("#text", "My name is Xiao Li.")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="send again").wait_for()
    await page.fill("#text", "and I was about to say")
    await asyncio.to_thread(service.restart)
    await page.reload()
    await page.locator(".said .note.remembered[data-settled]").wait_for()
    assert await page.locator(".bubble").all_inner_texts() == ["My name is Xiao Li.", f"Noted: {NAME}"]
    assert await page.input_value("#text") == "and I was about to say"
    with service.drop_response("POST", "/chat"):  # the service has it, and its answer is lost
        await page.fill("#text", "what is my name?")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="send again").wait_for()
    await page.reload()
    await page.wait_for_selector("body[data-ready]")
    await expect(page.locator(".bubble")).to_have_text(
        ["My name is Xiao Li.", f"Noted: {NAME}", "what is my name?", f"From memory: {NAME}"]
    )
    assert await page.evaluate("localStorage.getItem('recollect-outbox')") == "[]"


async def test_what_the_service_refuses_is_not_sent_again(lasting_service: Service, browser: Browser) -> None:
    page = await open_page(await browser.new_context(), lasting_service)
    await page.evaluate("document.getElementById('text').removeAttribute('maxlength')")
    await page.fill("#text", "x" * 8001)
    await page.keyboard.press("Enter")
    await page.locator(".said .note.failed").wait_for()
    assert "✗ not remembered" in await page.locator(".said .note").inner_text()
    assert await page.get_by_role("button", name="send again").count() == 0
    assert await page.evaluate("localStorage.getItem('recollect-outbox')") == "[]"


async def test_conversations_users_and_forgetting_everything(
    lasting_service: Service, browser: Browser
) -> None:
    page = await open_page(await browser.new_context(), lasting_service)
    await say(page, "My name is Xiao Li.")
    await page.get_by_role("button", name="New conversation").click()
    await page.wait_for_url("**session=*")
    await page.wait_for_selector("body[data-ready]")
    assert await page.locator(".bubble").count() == 0
    assert await page.locator("#memories .note").all_inner_texts() != []
    assert "from another conversation" in await page.locator("#memories li").inner_text()
    assert await say(page, "what is my name?") == f"From memory: {NAME}"
    await expect(page.locator("#conversations option")).to_have_text(
        ["what is my name?", "My name is Xiao Li."]
    )
    await page.select_option("#conversations", label="My name is Xiao Li.")
    await expect(page.locator(".bubble").first).to_have_text("My name is Xiao Li.")
    whole = await page.inner_text("body")
    assert not any(word in whole for word in ("fsynced", "lexical", "from main", "0."))

    name = await page.evaluate("localStorage.getItem('recollect-user')")
    await page.get_by_role("button", name="Switch user").click()
    await page.fill("#name", "somebody else")
    await page.keyboard.press("Enter")
    await expect(page.locator("#memories")).to_have_text("Nothing yet.")
    assert await page.evaluate("localStorage.getItem('recollect-user')") == "somebody else"
    await page.get_by_role("button", name="Switch user").click()
    await page.fill("#name", name)
    await page.keyboard.press("Enter")
    await expect(page.locator("#memories li p")).to_have_text([NAME])

    await page.get_by_role("button", name="Forget everything").first.click()
    await page.get_by_role("button", name="Cancel").last.click()
    await expect(page.locator("#memories li p")).to_have_text([NAME])
    await page.get_by_role("button", name="Forget everything").first.click()
    await page.locator("#sure .erase").click()
    await expect(page.locator("#memories")).to_have_text("Nothing yet.")
    assert await say(page, "what is my name?") == "I have no memory of that."


# ---- power loss


GOINGDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real ext4 on a loop device, which can be shut down as a power loss would."""
    if os.geteuid() != 0:
        pytest.skip("shutting a file system down as a power loss does needs root")
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install e2fsprogs mount")
    image, point = tmp_path / "disk.img", tmp_path / "disk"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a loop device here: {mounted.stderr.strip()}")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=False)


def lose_power(point: Path) -> None:
    """Everything that was not synced is gone; then the disk comes back, and its journal is replayed."""
    descriptor = os.open(point, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, GOINGDOWN, WITHOUT_LOG_FLUSH.to_bytes(4, "little"))
    finally:
        os.close(descriptor)


def repower(point: Path) -> None:
    image = point.with_suffix(".img")
    subprocess.run(["umount", str(point)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)


async def test_the_name_is_there_after_a_power_loss(
    chat_service: Start, browser: Browser, disk: Path
) -> None:
    service = chat_service(data=disk / "data")
    page = await open_page(await browser.new_context(), service)
    await say(page, "My name is Xiao Li.")
    lose_power(disk)
    service.kill()
    repower(disk)
    await asyncio.to_thread(service.restart)
    assert await say(page, "what is my name?") == f"From memory: {NAME}"
    assert await memories(page) == [NAME]


async def test_the_power_loss_is_one(disk: Path) -> None:
    """What was written and not synced is lost: else the test above proves nothing."""
    synced, unsynced = disk / "synced", disk / "unsynced"
    for path, sync in ((synced, True), (unsynced, False)):
        with path.open("w") as file:
            file.write("x")
            file.flush()
            if sync:
                os.fsync(file.fileno())
    lose_power(disk)
    repower(disk)
    assert synced.read_text() == "x"
    assert not unsynced.exists() or unsynced.read_text() == ""
