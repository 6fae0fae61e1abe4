from helpdesk.session import TidySession

from recollect.pytest_plugin import MemoryStoreSuite


class TestTidySession(MemoryStoreSuite):
    engine = "sqlite"
    policy = "wal-full"
    fault = ("kill-app-at-line", "concurrent-writers")
    workload = "turns"

    @staticmethod
    def factory(endpoint, session_id):
        return TidySession(session_id, endpoint.path)
