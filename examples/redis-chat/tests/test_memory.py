from shop.memory import ChatMemory

from recollect.pytest_plugin import MemoryStoreSuite


class TestChatMemory(MemoryStoreSuite):
    engine = "redis"
    policy = ("aof-everysec", "rdb")
    fault = ("kill-engine", "concurrent-writers", "clock-forward")
    retain = "7d"  # what the shop promises

    @staticmethod
    def factory(endpoint):
        return ChatMemory(endpoint.url)
