"""Where a real Chromium is, and how every test starts it."""

from playwright.async_api import expect

from recollect.verify.suite.browser import chromium as executable

__all__ = ["ARGUMENTS", "executable"]

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# Playwright's own five seconds are over before a busy machine has drawn anything.
expect.set_options(timeout=30_000)
