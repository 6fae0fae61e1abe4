"""Where a real Chromium is, and how every test starts it."""

import os
import shutil

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def executable() -> str | None:
    """RECOLLECT_CHROMIUM, or the first that is installed."""
    chosen = os.environ.get("RECOLLECT_CHROMIUM")
    names = [chosen] if chosen else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((found for name in names if (found := shutil.which(name))), None)
