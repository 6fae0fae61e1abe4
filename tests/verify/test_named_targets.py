"""Stores by their names: ours and anybody's, from one group of entry points."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from recollect.verify.matrix.selection import BadRequest, VerifyRequest, engine_of
from recollect.verify.target.registry import NamedTarget, address_of, named_targets
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import resolve

PROJECT = Path(__file__).parent.parent.parent

PLUGIN = """
import json
import sqlite3
from recollect.verify.target.registry import NamedTarget

TARGETS = {
    "shop.file": NamedTarget(
        "shop_memory:factory", "sqlite", ("shop-memory>=1",), ("single_writer",), "shop_memory:set_up"
    ),
    "shop.driverless": NamedTarget("shop_memory:factory", "sqlite", ("shop-memory>=1", "no-such-driver")),
    "shop.missing": NamedTarget("shop_memory:factory", "sqlite", ("no-such-distribution[x]>=2", "other")),
}
SOUND = TARGETS["shop.file"]
NO_DICTIONARY = 5
UNUSABLE = {
    "shop.forgot-a-comma": NamedTarget("shop_memory:factory", "sqlite", ("shop-memory>=1")),
    "shop.requires-nothing": NamedTarget("shop_memory:factory", "sqlite", ()),
    "shop.address-only": "shop_memory:factory",
    "shop:colon": SOUND,
    7: SOUND,
    "redis": SOUND,
    "agents.redis": SOUND,
    "shop.beside-them": SOUND,
}

def set_up(endpoint):
    with sqlite3.connect(endpoint.path) as database:
        database.execute("CREATE TABLE shop (session TEXT, message TEXT)")

class Shop:
    def __init__(self, path):
        self.path = path

    def append_message(self, session: str, message: str) -> None:
        with sqlite3.connect(self.path, timeout=30) as database:
            database.execute("INSERT INTO shop VALUES (?, ?)", (session, message))

    def get_messages(self, session: str) -> list:
        with sqlite3.connect(self.path, timeout=30) as database:
            rows = database.execute("SELECT message FROM shop WHERE session = ? ORDER BY rowid", (session,))
            return [message for (message,) in rows]

def factory(endpoint):
    return Shop(str(endpoint.path))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Somebody's distribution, installed: its module, name and version, and its entry points, one of them broken."""
    (tmp_path / "shop_memory.py").write_text(PLUGIN)
    about = tmp_path / "shop_memory-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-memory\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[recollect.targets]\nshop = shop_memory:TARGETS\nbroken = no_such_module:TARGETS\n"
        "a-number = shop_memory:NO_DICTIONARY\na-unusable = shop_memory:UNUSABLE\n"
    )
    return tmp_path


def recollect(plugin: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(plugin), "COLUMNS": "160"}
    command = [sys.executable, "-m", "recollect", *arguments]
    return subprocess.run(command, cwd=plugin, capture_output=True, text=True, timeout=300, env=environment)


def test_the_list_says_what_is_here_and_how_to_get_the_rest(plugin: Path) -> None:
    done = recollect(plugin, "verify", "--list")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert lines["shop.file"] == ["sqlite", "shop-memory 1.2"]
    assert lines["shop.missing"] == ["sqlite", "pip install 'no-such-distribution[x]>=2' 'other'"]
    assert lines["shop.driverless"] == ["sqlite", "pip install 'shop-memory>=1' 'no-such-driver'"]
    assert lines["agents.redis"][0] == "redis"
    assert "no_such_module" in done.stderr


def test_the_list_is_json_for_whoever_asks(plugin: Path) -> None:
    done = recollect(plugin, "verify", "--list", "--json", "-")
    assert done.returncode == 0, done.stderr
    stores = {row["name"]: row for row in json.loads(done.stdout)["stores"]}
    assert stores["shop.file"]["installed"] == "shop-memory 1.2"
    missing = stores["shop.missing"]
    assert (missing["engine"], missing["installed"]) == ("sqlite", None)
    assert missing["install"] == "pip install 'no-such-distribution[x]>=2' 'other'"


def test_rows_that_cannot_be_used_are_left_out_and_break_nothing(plugin: Path) -> None:
    done = recollect(plugin, "verify", "--list")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert lines["shop.beside-them"] == ["sqlite", "shop-memory 1.2"]
    assert lines["agents.redis"][0] == "redis"
    for said in (
        "'shop.forgot-a-comma' of shop_memory:UNUSABLE is left out: Expected `array`, got `str` - at `$.requires`",
        "'shop.requires-nothing' of shop_memory:UNUSABLE is left out: Expected `array` of length >= 1",
        "'shop.address-only' of shop_memory:UNUSABLE is left out: a NamedTarget is expected, not str",
        "'shop:colon' of shop_memory:UNUSABLE is left out: a name is text without a colon",
        "7 of shop_memory:UNUSABLE is left out: a name is text without a colon",
        "'redis' of shop_memory:UNUSABLE is left out: the name is taken",
        "'agents.redis' of shop_memory:UNUSABLE is left out: the name is taken",
        "shop_memory:NO_DICTIONARY cannot be loaded: TypeError: a dictionary of names",
    ):
        assert said in done.stderr
    unwanted = {
        "shop.forgot-a-comma",
        "shop.requires-nothing",
        "shop.address-only",
        "shop:colon",
        "7",
        "redis",
    }
    assert not unwanted & set(lines)


def test_somebody_elses_store_is_verified_by_its_name(plugin: Path) -> None:
    done = recollect(
        plugin, "verify", "shop.file", "--fault", "restart", "--policy", "wal-full", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    assert "shop.file (shop-memory 1.2, single_writer) on sqlite" in done.stderr
    cells = json.loads(done.stdout)["cells"]
    judged = [cell for cell in cells if cell["status"] != "skipped"]
    assert judged
    assert {(cell["target"], cell["engine"], cell["status"]) for cell in judged} == {
        ("shop.file", "sqlite", "held")
    }
    assert {cell["target_version"] for cell in judged} == {"shop-memory 1.2"}
    assert {tuple(cell["traits"]) for cell in judged} == {("single_writer",)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shop.driverless"], "needs is not installed: pip install 'shop-memory>=1' 'no-such-driver'"),
        (["shop.missing"], "pip install 'no-such-distribution[x]>=2' 'other'"),
        (["shop.file", "--engine", "redis"], "'shop.file' runs on sqlite, not on 'redis'"),
        (["shop.unheard-of"], "unknown target 'shop.unheard-of'"),
    ],
)
def test_what_cannot_run_says_why(plugin: Path, arguments: list[str], says: str) -> None:
    done = recollect(plugin, "verify", *arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_an_unknown_name_leads_to_the_list() -> None:
    with pytest.raises(BadTarget, match="--list"):
        resolve("shop.unheard-of")


@pytest.mark.parametrize(("name", "row"), named_targets().items())
def test_every_name_of_ours_leads_to_a_factory(name: str, row: NamedTarget) -> None:
    if row.installed is None:
        module = PROJECT / "src" / Path(*row.factory.partition(":")[0].split(".")).with_suffix(".py")
        assert f"def {row.factory.partition(':')[2]}(" in module.read_text()
    else:
        assert callable(resolve(name))


def test_names_are_expanded_and_the_rest_stays() -> None:
    assert address_of("agents.redis") == "recollect.verify.named.agents:redis"
    assert address_of("my.module:factory") == "my.module:factory"
    assert address_of("redis") == "redis"


def test_a_store_may_need_a_version_of_its_engine() -> None:
    name = "langchain.pgvector"
    assert engine_of(VerifyRequest(targets=(name,)), name) == "postgres@18"
    assert engine_of(VerifyRequest(targets=(name,), engine="postgres@16"), name) == "postgres@16"
    with pytest.raises(BadRequest, match="runs on postgres, not on 'redis'"):
        engine_of(VerifyRequest(targets=(name,), engine="redis"), name)


def test_an_installed_version_is_that_of_the_distribution() -> None:
    try:
        expected: str | None = version("msgspec")
    except PackageNotFoundError:
        expected = None
    assert NamedTarget("a:b", "sqlite", ("msgspec[extra]>=0.1 ; python_version > '3'",)).installed == expected
    assert NamedTarget("a:b", "sqlite", ("no-such-distribution",)).installed is None
