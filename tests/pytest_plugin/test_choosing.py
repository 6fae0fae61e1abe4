"""What is collected, and what is said about a suite that cannot be: without any engine."""

import re
import subprocess
import sys

import pytest

SUITE = """
from recollect.pytest_plugin import MemoryStoreSuite

class TestMemory(MemoryStoreSuite):
    factory = "shop_memory:ListMemory"
    engine = "redis"
    policy = ("rdb", "aof-always")
    fault = "restart"

def test_other():
    pass

def test_uses_an_engine(endpoint):
    pass
"""


def collected(project: pytest.Pytester, *options: str) -> list[str]:
    result = project.runpytest_inprocess("--collect-only", "-q", "-p", "no:xdist", *options)
    return [line.partition("::")[2] for line in result.stdout.lines if "::" in line]


def test_the_command_line_wins(project: pytest.Pytester) -> None:
    project.makepyfile(SUITE)
    assert collected(project, "--recollect-faults=kill-app,pause", "-k", "Memory") == [
        "TestMemory::test_survives[rdb-kill-app]",
        "TestMemory::test_survives[rdb-pause]",
        "TestMemory::test_survives[aof-always-kill-app]",
        "TestMemory::test_survives[aof-always-pause]",
    ]
    assert collected(project, "--recollect-url=redis://127.0.0.1:1/0", "-k", "Memory") == [
        "TestMemory::test_survives[custom-restart]"
    ]


def test_the_environment_names_an_engine(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile(SUITE)
    monkeypatch.setenv("RECOLLECT_REDIS_URL", "redis://127.0.0.1:1/0")
    assert collected(project, "-k", "Memory") == ["TestMemory::test_survives[custom-restart]"]


def test_several_versions_of_an_engine_are_a_row_each(project: pytest.Pytester) -> None:
    project.makepyfile(SUITE)
    found = collected(
        project, "-k", "Memory", "--recollect-engine", "redis@6", "--recollect-engine", "redis@7",
        "--recollect-engine", "redis@6", "--recollect-engine", "postgres",
    )  # fmt: skip
    assert found
    versions = [name.partition("[")[2].partition("-")[0] for name in found]
    assert set(versions) == {"redis@6", "redis@7"}
    assert versions.count("redis@6") == versions.count("redis@7") == len(found) // 2


def test_the_marker_leaves_them_out(project: pytest.Pytester) -> None:
    project.makepyfile(SUITE)
    assert collected(project, "-m", "not recollect", "--strict-markers") == ["test_other"]


def test_a_fixture_of_the_project_is_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def endpoint():
            return "http://api"

        def test_api(endpoint):
            assert endpoint == "http://api"
        """
    )
    project.runpytest_inprocess("-m", "not recollect", "-p", "no:xdist").assert_outcomes(passed=1)


WRONG = {
    "engine = 'redis'": "has no factory: add a static method factory(endpoint)",
    "engine = 'redis'\n    def factory(self, endpoint): ...": "add @staticmethod",
    "factory = 'a:b'": "say which engine: engine = 'redis'",
    "factory = 'a:b'; engine = 'redis'; fault = 'kill-engin'": "did you mean 'kill-engine'?",
    "factory = 'a:b'; engine = 'redis'; policy = 'aof'": "unknown policy 'aof' of redis",
    "factory = 'a:b'; engine = 'redis'; retain = 'a week'": "such as 60s or 7d",
    "factory = 'a:b'; engine = 'redis'; require = 'safe'": "'safe': written or fsynced, or whole-sessions",
    "factory = 'a:b'; engine = 'redis'; engine_config = 'my.conf'": "there is no",
}


def test_what_cannot_be_run_says_why(project: pytest.Pytester) -> None:
    classes = [f"class Test{place}(MemoryStoreSuite):\n    {body}\n" for place, body in enumerate(WRONG)]
    project.makepyfile("from recollect.pytest_plugin import MemoryStoreSuite\n" + "\n".join(classes))
    result = project.runpytest_inprocess("--collect-only", "-p", "no:xdist")
    text = result.stdout.str()
    for place, words in enumerate(WRONG.values()):
        assert re.search(rf"^Test{place}: .*{re.escape(words)}", text, re.MULTILINE), (words, text)
    assert "Traceback" not in text
    assert result.ret != 0


def test_other_suites_do_not_pay_for_it() -> None:
    """What pytest imports in every project: neither the kit nor the library's codec."""
    code = "import sys, recollect.pytest_plugin; print(*sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = ("recollect", "msgspec", "rich", "typer", "redis", "asyncpg", "sqlalchemy")
    ours = {name for name in seen.split() if name.split(".")[0] in heavy}
    packages = {"recollect", "recollect.verify", "recollect.verify.suite"}
    light = {"recollect.printable", "recollect.pytest_plugin", "recollect.verify.suite.service_fixture"}
    assert ours == packages | light
