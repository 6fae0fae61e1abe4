import sys

import pytest

from recollect.browser import ChatPage


@pytest.fixture
def page(service_under_test):
    service = service_under_test([sys.executable, "-m", "bot.app", "{port}"], health="/")
    return ChatPage(service, write="#message", answers=".bot")


def test_the_bot_remembers_my_name(page, remembered):
    remembered(page, say="My name is Xiao Li.", ask="What is my name?", expect="Xiao Li")
