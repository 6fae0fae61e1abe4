"""A module that raises when it is imported."""

raise RuntimeError("SECRET_KEY is not set")
