"""Who owns a run folder, and when it may be swept; ports that stay ours."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.verify.host import folder
from recollect.verify.host.errors import EngineError
from recollect.verify.host.folder import Deed, RunOwner, this_process
from recollect.verify.host.marker import Marker
from recollect.verify.host.ports import HOST, Reservation
from recollect.verify.host.waiting import wait_until
from tests.providers import foreign


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({}, False),
        ({"started_ticks": 1}, True),
        ({"pid": 2**22 + 1}, True),
        ({"boot": "another"}, True),
        ({"namespace": "pid:[1]"}, False),
        ({"namespace": "pid:[1]", "pid": 2**22 + 1}, False),
    ],
)
def test_an_owner_is_gone_only_when_it_certainly_is(change: dict[str, object], gone: bool) -> None:
    assert replace(this_process(), **change).gone() is gone  # type: ignore[arg-type]


GONE = replace(this_process(), started_ticks=1)


def owned(made: Path, owner: RunOwner, marker: Marker, number: int | None = None) -> None:
    deed = Deed(owner, marker.proof, made.lstat().st_ino if number is None else number)
    (made / folder._OWNER_FILE).write_bytes(msgspec.json.encode(deed))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, with somebody else's in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def swept_in(temporary: Path) -> list[Path]:
    """The sweep also looks into /tmp, where others work."""
    return [path for path in folder.sweep() if path.is_relative_to(temporary)]


def abandon(temporary: Path, marker: Marker) -> Path:
    """What a run that was killed together with its warden leaves."""
    made = temporary / f"{folder.PREFIX}{marker.name}"
    made.mkdir()
    (made / "data").write_text("left")
    owned(made, GONE, marker)
    return made


def test_a_folder_in_memory_is_swept_when_its_run_was_killed_with_its_warden() -> None:
    code = (
        "import os, signal; from recollect.verify.host import folder, processes\n"
        "print(folder.in_memory(1 << 20), flush=True)\n"
        "os.kill(processes.warden_pid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    made = Path(done.stdout.strip())
    assert made.is_dir(), done.stderr
    folder.sweep()
    # Another run on this machine may have been faster, and still be at it.
    wait_until(lambda: not made.exists(), 10.0, "it was not swept")


def test_a_folder_of_a_gone_owner_is_swept_and_its_farewell_is_said(temporary: Path) -> None:
    made = abandon(temporary, Marker.new())
    said = temporary / "said"
    (made / folder._FAREWELL_FILE).write_text(json.dumps({"argv": ["/usr/bin/touch", str(said)], "env": {}}))
    assert made in folder.sweep()
    assert not made.exists()
    assert said.exists()


def test_the_folder_of_this_run_can_be_recognised_by_the_next(temporary: Path) -> None:
    marker = Marker.new()
    made = folder._make(temporary, marker)
    deed = msgspec.json.decode((made / folder._OWNER_FILE).read_bytes(), type=Deed)
    assert deed.written_for(made)
    assert not deed.owner.gone()
    assert made not in folder.sweep()
    owned(made, GONE, marker)
    assert made in folder.sweep()


def test_a_folder_of_a_living_owner_stays(temporary: Path) -> None:
    marker = Marker.new()
    made = abandon(temporary, marker)
    owned(made, this_process(), marker)
    assert swept_in(temporary) == []
    assert made.exists()


def test_a_process_with_a_terminal_may_look_around_in_what_is_swept(temporary: Path) -> None:
    made = abandon(temporary, Marker.new())
    server = subprocess.Popen(["/bin/sleep", "60"], cwd=made, start_new_session=True)
    keyboard, terminal = os.openpty()
    take_it = "import fcntl, termios, time; fcntl.ioctl(0, termios.TIOCSCTTY, 0); time.sleep(60)"
    shell = subprocess.Popen(
        [sys.executable, "-c", take_it], cwd=made, stdin=terminal, start_new_session=True
    )
    try:
        wait_until(lambda: folder._has_terminal(shell.pid), 10, "it has no terminal")
        assert made in folder.sweep()
        assert server.wait(10) == -signal.SIGKILL
        assert shell.poll() is None
    finally:
        for process in (server, shell):
            process.kill()
            process.wait()
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda made: (made / folder._OWNER_FILE).unlink(), id="no owner file"),
        pytest.param(lambda made: (made / folder._OWNER_FILE).write_text("mine"), id="not a deed"),
        pytest.param(
            lambda made: (made / folder._OWNER_FILE).write_text(json.dumps(asdict(GONE))), id="only an owner"
        ),
        pytest.param(lambda made: owned(made, GONE, Marker.new()), id="another's proof"),
        pytest.param(lambda made: owned(made, GONE, Marker("")), id="no proof"),
        pytest.param(lambda made: (made / folder._OWNER_FILE).chmod(0o666), id="writable by all"),
        pytest.param(lambda made: made.chmod(0o777), id="a folder writable by all"),
        pytest.param(lambda made: made.rename(made.with_name(f"{folder.PREFIX}evidence")), id="renamed"),
        pytest.param(
            lambda made: shutil.move(shutil.copytree(made, made.with_name("copy")), _emptied(made)),
            id="a copy",
        ),
    ],
)
def test_what_is_not_proven_to_be_ours_stays(temporary: Path, spoil: Callable[[Path], object]) -> None:
    made = abandon(temporary, Marker.new())
    spoil(made)
    old = time.time() - 100_000
    for path in temporary.iterdir():
        os.utime(path, (old, old))
    before = foreign.folder(temporary)
    assert swept_in(temporary) == []
    assert foreign.folder(temporary) == before


def _emptied(made: Path) -> Path:
    """Its name is free, its number is not."""
    made.rename(made.with_name("original"))
    return made


@given(
    name=st.from_regex(r"[a-zA-Z0-9_.-]{1,40}", fullmatch=True),
    content=st.one_of(st.none(), st.binary(max_size=200), st.just(json.dumps(asdict(GONE)).encode())),
)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_folders_of_others_stay_whatever_they_are_called(
    temporary: Path, name: str, content: bytes | None
) -> None:
    made = temporary / f"{folder.PREFIX}{name}"
    made.mkdir(exist_ok=True)
    (made / "precious").write_text("precious")
    if content is not None:
        (made / folder._OWNER_FILE).write_bytes(content)
    before = foreign.folder(temporary)
    assert swept_in(temporary) == []
    assert foreign.folder(temporary) == before


def test_a_symlink_in_the_temporary_folder_is_not_followed(temporary: Path) -> None:
    marker = Marker.new()
    precious = temporary / "precious"
    precious.mkdir()
    owned(precious, GONE, marker)
    link = temporary / f"{folder.PREFIX}{marker.name}"
    link.symlink_to(precious)
    owned(precious, GONE, marker, link.lstat().st_ino)
    before = foreign.folder(temporary)
    assert swept_in(temporary) == []
    assert foreign.folder(temporary) == before


def test_a_reserved_port_is_kept_while_the_server_is_down_and_shared_with_it() -> None:
    reservation = Reservation()
    try:
        with pytest.raises(EngineError, match="is not free"):
            Reservation(reservation.port)
        for _ in range(2):  # a server, and the same server restarted
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind((HOST, reservation.port))
                server.listen()
                socket.create_connection((HOST, reservation.port)).close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, reservation.port))
    finally:
        reservation.close()


def test_reservations_never_share_a_port() -> None:
    made = [Reservation() for _ in range(300)]
    assert len({reservation.port for reservation in made}) == len(made)
    for reservation in made:
        reservation.close()
