"""Kept for its address, which tests import; the code is in `recollect.verify.suite.browser` and `service_fixture`."""

from recollect.verify.suite.browser import BrowserUnavailable, ChatPage, NotRemembered
from recollect.verify.suite.service_fixture import remembered

__all__ = ["BrowserUnavailable", "ChatPage", "NotRemembered", "remembered"]
