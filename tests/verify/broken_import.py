"""A module whose dependency is missing."""

import not_installed_anywhere  # type: ignore[import-not-found]  # noqa: F401
