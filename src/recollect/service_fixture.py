"""Kept for its address, which conftest files import; the code is in `recollect.verify.suite.service_fixture`."""

from recollect.verify.suite.service_fixture import service_under_test

__all__ = ["service_under_test"]
