"""`--data` and `--expect`: today's store on yesterday's data."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect import Message, open_store
from recollect.cli import build
from recollect.verify import engines
from recollect.verify.engines import postgres_cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running import older_data
from recollect.verify.running.older_data import BadData
from recollect.verify.running.older_run import OlderDataRun
from recollect.verify.running.scenario import Scenario
from tests.verify.older_stores import write_first_release

LONG = "a long text, the same up to here " * 5
SESSIONS = {
    "user-1": [
        ("user", "my name is Xiao Li"),
        ("assistant", "hello"),
        ("user", f"{LONG}one"),
        ("user", f"{LONG}two"),
        ("assistant", "hello"),
    ],
    "user-2": [("user", "what did I say?"), ("assistant", ""), ("user", "ü 𝄞 \n line")],
}
STORES = "tests.verify.older_stores"


def listed(folder: Path, sessions: dict[str, list[tuple[str, str]]] = SESSIONS) -> Path:
    file = folder / "sessions.jsonl"
    with file.open("w") as out:
        for session, messages in sessions.items():
            row = {
                "session": session,
                "messages": [{"role": role, "content": text} for role, text in messages],
            }
            out.write(json.dumps(row) + "\n")
    return file


def run_on(data: Path, expect: Path, target: str, engine: str, policy: str, folder: Path) -> Verdict:
    folder.mkdir(exist_ok=True)
    scenario = Scenario(
        target=target,
        engine=engine,
        policy=policy,
        fault="older-data",
        workload="older-data",
        writers=1,
        readers=0,
        ops_max=0,
        data=str(data),
        expect=str(expect),
    )
    return OlderDataRun(scenario, folder).execute()


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("yesterday")
    write_first_release(folder / "chat.db", SESSIONS)
    listed(folder)
    return folder


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("BothLayouts", []),
        ("SkipsOldRows", ["silent-reset"]),
        ("EmptyOldTexts", ["corrupted"]),
        ("RaisesOnOldRows", ["unreadable"]),
        ("OtherRoles", ["corrupted"]),
        ("NewestFirst", ["reorder"]),
        ("PlacesFromOne", ["hole"]),
        ("CannotAppend", ["raised"]),
    ],
)
def test_each_release_that_cannot_read_the_first_is_caught_and_the_other_is_not(
    first_release: Path, tmp_path: Path, release: str, found: list[str]
) -> None:
    data, expect = first_release / "chat.db", first_release / "sessions.jsonl"
    before = data.read_bytes()
    verdict = run_on(data, expect, f"{STORES}:{release}", "sqlite", "wal-full", tmp_path)
    assert verdict.status == ("violated" if found else "held"), verdict.reason
    assert [anomaly.name for anomaly in verdict.anomalies][: len(found) or 1] == found
    assert data.read_bytes() == before
    assert {path.name for path in first_release.iterdir()} == {"chat.db", "sessions.jsonl"}


# ---- every format, with our own store


async def remember(url: str) -> None:
    async with open_store(url) as store:
        for session, messages in SESSIONS.items():
            await store.append(session, [Message(role, text) for role, text in messages])


@pytest.fixture(scope="module")
def redis_copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a Redis leaves: its snapshot alone, and its folder."""
    place = tmp_path_factory.mktemp("redis")
    engine = engines.create("redis", "mixed")
    try:
        asyncio.run(remember(engine.start().url))
        assert isinstance(engine, RedisEngine)
        engine.ask("SAVE")
        engine.stop()
        shutil.copyfile(engine.data / "dump.rdb", place / "snapshot")
        shutil.copytree(engine.data, place / "folder")
    finally:
        engine.close()
    return {"rdb": place / "snapshot", "aof-everysec": place / "folder"}


@pytest.mark.parametrize("policy", ["rdb", "aof-everysec"])
def test_redis_as_a_snapshot_and_as_a_folder(
    redis_copies: dict[str, Path], tmp_path: Path, policy: str
) -> None:
    data = redis_copies[policy]
    assert older_data.recognise(data).policy_for(None) == policy
    verdict = run_on(data, listed(tmp_path), "redis", "redis", policy, tmp_path / "run")
    assert (verdict.status, verdict.lost) == ("held", 0), verdict.reason
    assert verdict.acked > 8  # and it went on appending


@pytest.fixture(scope="module")
def postgres_copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Dumps of every format, and the folder of a server that was stopped."""
    place = tmp_path_factory.mktemp("postgres")
    engine = engines.create("postgres")
    try:
        asyncio.run(remember(engine.start().url))
        assert isinstance(engine, PostgresEngine)
        work = postgres_cluster.workspace(engine.folder, "dumps")
        where = ["-h", str(engine.socket_folder), "-p", str(engine.port), "-U", "postgres"]
        for form in "cptd":
            words = [*where, "-F", form, "-f", str(work / form), "postgres"]
            postgres_cluster.run_tool(engine.programs, "pg_dump", words, work, 60.0)
        space = postgres_cluster.workspace(engine.folder, "space")
        engine.ask(f"CREATE TABLESPACE elsewhere LOCATION '{space}'")
        engine.ask("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE elsewhere")
        engine.stop()
        shutil.copytree(engine.data, place / "folder", symlinks=True)
        shutil.copytree(work, place / "dumps")
        shutil.copytree(space, place / "space")
        [link] = (place / "folder" / "pg_tblspc").iterdir()
        link.unlink()
        link.symlink_to(place / "space")
    finally:
        engine.close()
    return {**{form: place / "dumps" / form for form in "cptd"}, "folder": place / "folder"}


def test_every_format_of_pg_dump_is_recognised(postgres_copies: dict[str, Path]) -> None:
    assert {older_data.recognise(postgres_copies[form]).format.called for form in "cptd"} == {
        "a PostgreSQL dump"
    }


@pytest.mark.parametrize("form", ["c", "p", "folder"])
def test_postgres_as_a_dump_and_as_a_folder(
    postgres_copies: dict[str, Path], tmp_path: Path, form: str
) -> None:
    found = older_data.recognise(postgres_copies[form])
    engine = found.engine_for("postgres")
    verdict = run_on(found.path, listed(tmp_path), "postgres", engine, "default", tmp_path / "run")
    assert (verdict.status, verdict.lost) == ("held", 0), verdict.reason
    assert verdict.acked > 8


def test_a_folder_without_its_tablespace_is_refused(postgres_copies: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(postgres_copies["folder"], tmp_path / "folder", symlinks=True)
    [link] = (tmp_path / "folder" / "pg_tblspc").iterdir()
    link.unlink()
    link.symlink_to(tmp_path / "left-behind")
    with pytest.raises(
        BadData, match=r"lacks pg_tblspc/\d+: it is a link to .*left-behind, which is not here"
    ):
        older_data.recognise(tmp_path / "folder")


def test_what_is_in_the_log_beside_a_sqlite_file_counts(tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "chat.db")
    writer.execute("PRAGMA journal_mode=wal")
    writer.execute("SELECT * FROM sqlite_master").fetchall()  # while it is open, nobody empties the log
    write_first_release(tmp_path / "chat.db", SESSIONS)
    assert (tmp_path / "chat.db-wal").stat().st_size > 0
    data, expect = tmp_path / "chat.db", listed(tmp_path)
    verdict = run_on(data, expect, f"{STORES}:BothLayouts", "sqlite", "wal-full", tmp_path / "run")
    writer.close()
    assert (verdict.status, verdict.lost) == ("held", 0), verdict.reason


def test_the_log_beside_what_a_link_names_counts(tmp_path: Path) -> None:
    (tmp_path / "yesterday").mkdir()
    (tmp_path / "yesterday" / "chat.db-wal").write_bytes(b"a log")
    (tmp_path / "yesterday" / "chat.db").write_bytes(b"SQLite format 3\0")
    (tmp_path / "linked.db").symlink_to("yesterday/chat.db")
    (tmp_path / "copy").mkdir()
    found = older_data.recognise(tmp_path / "linked.db")
    found.format.copy(found.path, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"memory.db", "memory.db-wal"}


def test_a_copy_has_no_way_back_to_the_original(tmp_path: Path) -> None:
    """Servers keep their logs on other disks, behind a link: an engine that follows it in a copy would write there."""
    elsewhere, data, copy = (tmp_path / name for name in ("elsewhere", "data", "copy"))
    for folder in (elsewhere, data, copy):
        folder.mkdir()
    (elsewhere / "log").write_text("yesterday's")
    (data / "dump.rdb").symlink_to(elsewhere / "log")
    (data / "appendonlydir").symlink_to("../elsewhere")
    (data / "gone").symlink_to(elsewhere / "to be made")
    (data / "around").symlink_to(data)
    os.mkfifo(elsewhere / "pipe")
    (data / "waits").symlink_to(elsewhere / "pipe")
    found = older_data.recognise(data)
    found.format.copy(found.path, copy)
    assert {str(path.relative_to(copy)) for path in copy.rglob("*")} == {
        "dump.rdb",
        "appendonlydir",
        "appendonlydir/log",
    }
    assert not [path for path in copy.rglob("*") if path.is_symlink()]
    for path in (copy / "dump.rdb", copy / "appendonlydir" / "log"):
        assert path.read_text() == "yesterday's"


def test_a_dump_behind_a_link_keeps_its_rights(tmp_path: Path) -> None:
    dump, work = tmp_path / "dump", tmp_path / "work"
    dump.mkdir()
    work.mkdir()
    (tmp_path / "toc").write_text("yesterday's")
    (tmp_path / "toc").chmod(0o600)
    (dump / "toc.dat").symlink_to(tmp_path / "toc")
    copy = Path(older_data._readable(dump, work))
    assert (tmp_path / "toc").stat().st_mode & 0o777 == 0o600
    assert not (copy / "toc.dat").is_symlink()
    assert (copy / "toc.dat").stat().st_mode & 0o777 == 0o644


def test_a_session_that_the_data_does_not_have_is_missed(first_release: Path, tmp_path: Path) -> None:
    expect = listed(tmp_path, {**SESSIONS, "user-3": [("user", "I was here too")]})
    data = first_release / "chat.db"
    verdict = run_on(data, expect, f"{STORES}:BothLayouts", "sqlite", "wal-full", tmp_path / "run")
    assert (verdict.status, verdict.lost) == ("violated", 1)
    assert verdict.anomalies[0].first.session == "user-3"


def test_a_list_of_another_memory_is_not_the_stores_fault(first_release: Path, tmp_path: Path) -> None:
    """Nothing that is listed is in the data. One listed message that is there makes it the store's fault again."""
    other = {"user-7": [("user", "where are 'Grüße' from?"), ("user", "from \n nowhere")]}
    data, store = first_release / "chat.db", f"{STORES}:BothLayouts"
    with pytest.raises(BadData, match=r"does not match .*: the store finds none of the 2 listed messages"):
        run_on(data, listed(tmp_path, other), store, "sqlite", "wal-full", tmp_path / "run")
    one = listed(tmp_path, {**other, "user-8": [("user", "my name is Xiao Li")]})
    verdict = run_on(data, one, store, "sqlite", "wal-full", tmp_path / "again")
    assert (verdict.status, verdict.lost) == ("violated", 3)


# ---- the command, and what it refuses


def verify(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(build(["verify"]), ["verify", *words])
    return done.exit_code, done.output


def test_the_command_reads_what_recollect_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(remember(f"sqlite:///{tmp_path}/memory.db"))
    exported = CliRunner().invoke(build(["export"]), ["export", f"sqlite:///{tmp_path}/memory.db"])
    (tmp_path / "sessions.jsonl").write_text(exported.stdout)
    code, said = verify("--data", "memory.db", "--expect", "sessions.jsonl", "--out", "run")
    assert (code, "held" in said) == (0, True), said
    again = CliRunner().invoke(build(["report"]), ["report", "run"])
    assert (again.exit_code, "held" in again.output) == (0, True), again.output


def test_the_command_and_the_report_tell_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(remember(f"sqlite:///{tmp_path}/memory.db"))
    more = listed(tmp_path, {name: [*told, ("user", "never said")] for name, told in SESSIONS.items()})
    code, said = verify("sqlite", "--data", "memory.db", "--expect", str(more), "--out", "run", "--html", "h")
    assert (code, "lost-tail" in said, "not made smaller" in said) == (1, True, True), said
    assert "number 6 of those that --expect lists for it, is missing" in " ".join(said.split()), said
    assert "acknowledged at" not in said
    again = CliRunner().invoke(build(["report"]), ["report", "run"])
    assert (again.exit_code, "lost-tail" in again.output) == (1, True), again.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sqlite", "--data", "chat.db"], "--data chat.db needs the list of what it has to hold"),
        (["sqlite", "--expect", "sessions.jsonl"], "needs the data that has to hold it"),
        (["sqlite", "--data", "none", "--expect", "sessions.jsonl"], "--data none: there is no such file"),
        (["sqlite", "--data", "text", "--expect", "sessions.jsonl"], "--data text is of no known format"),
        (["redis", "--data", "chat.db", "--expect", "sessions.jsonl"], "a SQLite file, for sqlite, and the"),
        (["sqlite", "--data", "chat.db", "--expect", "none"], "--expect none: No such file"),
        (["sqlite", "--data", "chat.db", "--expect", "text"], "--expect text, line 1 is not JSON"),
        (["sqlite", "--data", "chat.db", "--expect", "twice"], "line 2 has the session 'a' again"),
        (["sqlite", "--data", "chat.db", "--expect", "empty"], "lists no message"),
        (["sqlite", "--data", "chat.db", "--expect", "odd"], "line 1, message 2 is"),
        (["sqlite", "--data", "chat.db", "--expect", "pipe"], "--expect pipe: Not a regular file"),
        (
            ["sqlite", "--data", "chat.db", "--expect", "sessions.jsonl", "--fault", "cut"],
            "--data and --fault exclude each other",
        ),
        (
            ["redis", "--data", "dump", "--expect", "sessions.jsonl", "--policy", "aof-always"],
            "--policy aof-always: an RDB file of Redis is loaded under rdb",
        ),
    ],
)
def test_bad_input_is_named_and_ends_with_2(
    first_release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(first_release, tmp_path, dirs_exist_ok=True)
    (tmp_path / "text").write_text("what a day\n")
    (tmp_path / "dump").write_bytes(b"REDIS0011")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "twice").write_text('{"session": "a", "messages": ["x"]}\n' * 2)
    (tmp_path / "empty").write_text('{"session": "a", "messages": []}\n')
    (tmp_path / "odd").write_text('{"session": "a", "messages": ["x", 7]}\n')
    code, said = verify(*words)
    assert (code, says in said) == (2, True), said


def test_data_that_its_engine_refuses_ends_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0009" + bytes(40))
    code, said = verify("redis", "--data", "dump.rdb", "--expect", str(listed(tmp_path)))
    assert (code, "dump.rdb" in said) == (2, True), said


def test_the_folder_of_a_running_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("16\n")
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n")
    with pytest.raises(BadData, match="in use by a running server"):
        older_data.recognise(tmp_path)
    (tmp_path / "postmaster.pid").write_text("999999999\n")
    found = older_data.recognise(tmp_path)
    assert found.engine_for(None) == "postgres@16"
    with pytest.raises(BadData, match="of version 16, and postgres@15 does not start on it"):
        found.engine_for("postgres@15")
