"""Proxies between the servers of one engine."""

import logging
import socket

import pytest

from recollect.verify.engines.mesh import Mesh
from recollect.verify.host.ports import HOST


def test_a_mesh_closes_with_open_links_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(30)
        mesh = Mesh()
        seen, _ = mesh.stand_before("node", server.getsockname()[1])
        with socket.create_connection((HOST, seen), 30) as client:
            behind, _ = server.accept()
            with behind:
                client.sendall(b"PING\r\n")
                assert behind.recv(16) == b"PING\r\n"
                with caplog.at_level(logging.DEBUG, "asyncio"):
                    mesh.close()
                assert [one.getMessage() for one in caplog.records] == []
                behind.settimeout(30)
                assert behind.recv(16) == b"", "the link has ended"
        with pytest.raises(OSError):
            socket.create_connection((HOST, seen), 30)
