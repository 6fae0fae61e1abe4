"""The same data under another version: what is kept, what is lost in silence, what refuses to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify import engines, providers
from recollect.verify.engines.local import LocalServer
from tests.engines import rows
from tests.engines.conftest import Create, need
from tests.providers.other_chroma import other_chroma


def test_redis_6_to_7_keeps_data_and_7_to_6_starts_empty_in_silence(create: Create) -> None:
    need("redis@7")
    engine = create("redis@6.2", "aof-always")
    engine.start()
    rows.write(engine, "written by 6.2")
    assert engine.upgrade("7").version.startswith("7.")
    assert rows.read(engine) == ["written by 6.2"]
    rows.write(engine, "written by 7")

    assert engine.downgrade("6.2").version.startswith("6.2")
    assert "written by 7" not in rows.read(engine), (
        "the AOF of 7 is in appendonlydir, where 6.2 does not look"
    )


def test_redis_7_to_6_on_a_folder_of_7_starts_empty_without_an_error(create: Create) -> None:
    need("redis@6.2")
    engine = create("redis@7", "aof-always")
    engine.start()
    rows.write(engine, "written by 7")
    engine.kill()
    engine.downgrade("6.2")
    assert rows.read(engine) == []
    assert not any("error" in line.lower() for line in engine.logs().splitlines())


def test_redis_to_valkey_is_asked_for_by_name(create: Create) -> None:
    need("valkey@9")
    engine = create("redis@6.2", "rdb")
    engine.start()
    rows.write(engine, "written by Redis")
    assert engine.upgrade("valkey@9").product == "Valkey"
    assert rows.read(engine) == ["written by Redis"]


def test_pg_upgrade_keeps_data_also_after_a_crash(create: Create) -> None:
    """pg_upgrade takes only a cluster that was shut down in good order, so a crashed one is started and
    stopped first."""
    need("postgres@18")
    engine = create("postgres@16")
    engine.start()
    rows.write(engine, "written by 16")
    engine.kill()
    assert engine.upgrade("18").version.startswith("18.")
    assert rows.read(engine) == ["written by 16"]


@pytest.mark.parametrize(("old", "new"), [("16", "18"), ("18", "16")])
def test_the_plain_attempt_refuses_to_start_and_the_former_version_is_back(
    create: Create, old: str, new: str
) -> None:
    need(f"postgres@{new}")
    engine = create(f"postgres@{old}")
    engine.start()
    rows.write(engine, "kept")
    with pytest.raises(engines.StartFailed) as caught:
        engine.swap(new)
    assert "another major version" in caught.value.reason
    assert "FATAL" in caught.value.log
    assert not engine.alive()
    assert engine.start().version.startswith(f"{old}.")
    assert rows.read(engine) == ["kept"]


def test_chroma_goes_on_with_the_same_folder_under_another_release(
    create: Create, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    older = other_chroma(tmp_path, "1.0.20")
    engine = create("chroma@1.0", "server")
    assert engine.start().version == "1.0.20"
    assert str(older) in _command_line(engine)
    rows.write(engine, "written by 1.0")

    newer = providers.find("chroma")
    assert engine.upgrade(newer.version).version == newer.version
    assert str(Path(newer.location).parent) in _command_line(engine)
    assert rows.read(engine) == ["written by 1.0"]
    assert engine.downgrade("1.0").version == "1.0.20"
    assert str(older) in _command_line(engine)


def test_chroma_without_a_server_has_no_release_of_its_own_to_change(create: Create) -> None:
    with pytest.raises(engines.EngineError, match="the target's own process"):
        create("chroma", "embedded").upgrade("1.0")


def _command_line(engine: LocalServer) -> list[str]:
    return Path(f"/proc/{engine.pid}/cmdline").read_text().split("\0")


def test_an_unknown_version_leaves_the_engine_running(create: Create) -> None:
    engine = create("redis@7")
    engine.start()
    with pytest.raises(engines.NotInstalled, match="nearest found is redis@7"):
        engine.upgrade("77")
    assert engine.alive()
