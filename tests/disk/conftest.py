"""Settings of the disk tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says something about the machine's other users, nothing about the code.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
