"""`recollect erase`: asks first, says what it reached, and ends with a code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from recollect import Message, cli, exit_codes
from recollect.sync import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/memory.db"
    with open_store(url) as store:
        store.append("xiao-li", [Message("user", "canary-91c2")])
        store.append("other", [Message("user", "stays")])
    return url


def erase(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli.build(["erase"]), ["erase", *arguments], input=answer)


def left(url: str, session: str = "xiao-li") -> int:
    with open_store(url) as store:
        return len(store.history(session))


@pytest.mark.parametrize("answer", ["", "n\n", "\n"])
def test_without_a_yes_nothing_is_erased(url: str, answer: str) -> None:
    result = erase(url, "xiao-li", answer=answer)
    assert result.exit_code == exit_codes.USAGE
    assert "nothing was erased" in result.output
    assert left(url) == 1


@pytest.mark.parametrize(("flags", "answer"), [((), "y\n"), (("--yes",), "")])
def test_it_says_what_it_reached(url: str, tmp_path: Path, flags: tuple[str, ...], answer: str) -> None:
    result = erase(url, "xiao-li", *flags, answer=answer)
    assert result.exit_code == 0
    assert "erased 'xiao-li' from memory.db, memory.db-wal" in result.output
    assert "backups and snapshots" in result.output
    assert (left(url), left(url, "other")) == (0, 1)
    assert b"canary-91c2" not in (tmp_path / "memory.db").read_bytes()


def test_an_id_that_nobody_knows_is_doubted(url: str) -> None:
    result = erase(url, "xiao-lee", "--yes")
    assert result.exit_code == 0
    assert "there was no session 'xiao-lee': is that its id?" in result.output
    assert "nothing is left of 'xiao-lee' in memory.db" in result.output
    for _ in range(2):
        assert "is that its id" not in erase(url, "xiao-li", "--yes").output
        with open_store(url) as store:
            store.append("xiao-li", [Message("user", "again")])
            store.forget("xiao-li")


def test_as_json(url: str) -> None:
    report = json.loads(erase(url, "xiao-li", "--yes", "--json").output)
    assert report["session"] == "xiao-li"
    assert report["reached"] == ["memory.db", "memory.db-wal"]
    assert [unreached["where"] for unreached in report["unreached"]] == ["backups and snapshots"]


def test_an_address_that_leads_nowhere_is_one_sentence(tmp_path: Path) -> None:
    result = erase(f"sqlite:///{tmp_path}/no/memory.db", "s", "--yes")
    assert result.exit_code == exit_codes.USAGE
    assert "there is no such file" in result.output
    assert "Traceback" not in result.output
