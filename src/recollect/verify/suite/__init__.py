"""The kit inside a test suite: stores as test classes, services as fixtures."""
