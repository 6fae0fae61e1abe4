"""Who owns a run folder, and when it may be swept; ports that stay ours."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from recollect.verify.host import folder
from recollect.verify.host.errors import EngineError
from recollect.verify.host.folder import Owner, this_process
from recollect.verify.host.ports import HOST, Reservation


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


@pytest.fixture
def abandoned() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix=folder.PREFIX))
    yield made
    (made / folder._OWNER_FILE).unlink(missing_ok=True)
    if made.exists():
        made.rmdir()


def test_a_folder_without_an_owner_is_swept_only_when_it_is_old(abandoned: Path) -> None:
    assert abandoned not in folder.sweep()
    old = time.time() - 7200
    os.utime(abandoned, (old, old))
    assert abandoned in folder.sweep()


def test_a_folder_of_a_gone_owner_is_swept_and_its_farewell_is_said(abandoned: Path, tmp_path: Path) -> None:
    owner: Owner = replace(this_process(), started_ticks=1)
    (abandoned / folder._OWNER_FILE).write_text(json.dumps(asdict(owner)))
    said = tmp_path / "said"
    (abandoned / folder._FAREWELL_FILE).write_text(
        json.dumps({"argv": ["/usr/bin/touch", str(said)], "env": {}})
    )
    assert abandoned in folder.sweep()
    assert said.exists()


def test_a_symlink_in_the_temporary_folder_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    owner = replace(this_process(), started_ticks=1)
    (precious / folder._OWNER_FILE).write_text(json.dumps(asdict(owner)))
    link = Path(tempfile.gettempdir()) / f"{folder.PREFIX}link-{os.getpid()}"
    link.symlink_to(precious)
    try:
        assert link not in folder.sweep()
        assert precious.exists()
    finally:
        link.unlink()


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
