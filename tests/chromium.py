"""Where a real Chromium is, and how every test starts it."""

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
