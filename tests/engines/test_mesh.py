"""Proxies between the servers of one engine."""

import contextlib
import logging
import random
import socket
import threading

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


def test_a_mesh_closes_on_connections_that_it_has_just_accepted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "asyncio")
    for _ in range(6):
        with socket.create_server((HOST, 0)) as server, contextlib.ExitStack() as clients:
            mesh = Mesh()
            seen, _ = mesh.stand_before("node", server.getsockname()[1])
            caplog.clear()
            for _ in range(300):
                client = clients.enter_context(socket.socket())
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.connect((HOST, seen))
            mesh.close()
            assert [one.getMessage() for one in caplog.records] == []


def _answer(server: socket.socket) -> None:
    """Answers everything that one client asks."""
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        while connection.recv(64):
            connection.sendall(b"+OK\r\n")


@pytest.mark.parametrize(
    ("greeting", "lost"), [(b"PING\r\n", True), (b"listening-port\r\n$4\r\n7001\r\n", False)]
)
def test_replies_are_lost_on_their_way_to_clients_alone(greeting: bytes, *, lost: bool) -> None:
    with socket.create_server((HOST, 0)) as server, contextlib.ExitStack() as stack:
        answering = threading.Thread(target=_answer, args=(server,))
        answering.start()
        stack.callback(answering.join)
        mesh = Mesh()
        stack.callback(mesh.close)
        seen, _ = mesh.stand_before("node", server.getsockname()[1])
        mesh.stand_before("replica", 7001)
        mesh.lose_replies(1, random.Random(7))
        client = stack.enter_context(socket.create_connection((HOST, seen), 30))
        replies = []
        with contextlib.suppress(ConnectionError):
            for _ in range(10):
                client.sendall(greeting)
                replies.append(client.recv(64))
        assert (set(replies) == {b"+OK\r\n"} and len(replies) == 10) is not lost
        assert replies[:4] == [b"+OK\r\n"] * 4, "until a server would have said who it is"
