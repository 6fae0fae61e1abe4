"""The fixture on a planted service: the liar is caught every time, the honest one never."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from recollect.verify.suite.service import Service, ServiceFailed
from recollect.verify.suite.service_fixture import service_under_test as service_under_test

Start = Callable[..., Service]
PLANTED = [sys.executable, "-S", str(Path(__file__).with_name("planted.py")), "{port}"]
OPTIONS = {"health": "/ready", "data_env": "NOTES_FOLDER"}


def kept_after_kill(service: Service, note: str, path: str = "/notes") -> bool:
    with service.kill_after_response("POST", path):
        answer = httpx.post(f"{service.base_url}{path}", json=note)
        assert answer.status_code == 200
        assert note in answer.text, "the response must arrive whole"
    service.restart()
    return note in httpx.get(f"{service.base_url}/notes").json()


@pytest.mark.parametrize("path", ["/notes", "/chunked"])
def test_a_service_that_answers_before_its_write_is_caught_every_time(
    service_under_test: Start, path: str
) -> None:
    service = service_under_test(PLANTED, env={"MODE": "early", "WINDOW_MS": "5"}, **OPTIONS)
    kept = [kept_after_kill(service, f"note {number}", path) for number in range(5)]
    assert kept == [False] * 5


def test_an_honest_service_keeps_every_note(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    kept = [kept_after_kill(service, f"note {number}") for number in range(5)]
    assert kept == [True] * 5
    assert len(httpx.get(f"{service.base_url}/notes").json()) == 5


def test_without_the_kill_the_liar_looks_honest(service_under_test: Start) -> None:
    """Why the proxy is needed: a test that only asks again sees nothing wrong."""
    service = service_under_test(PLANTED, env={"MODE": "early"}, **OPTIONS)
    httpx.post(f"{service.base_url}/notes", json="a")
    deadline = time.monotonic() + 10
    while httpx.get(f"{service.base_url}/notes").json() != ["a"]:
        assert time.monotonic() < deadline


def test_a_dropped_response_was_served(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    with service.drop_response("POST", "/notes"):
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{service.base_url}/notes", json="a")
    assert httpx.get(f"{service.base_url}/notes").json() == ["a"]
    assert httpx.post(f"{service.base_url}/notes", json="b").status_code == 200


def test_other_requests_do_not_strike(service_under_test: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    monkeypatch.setattr("recollect.verify.suite.service.STRIKE_TIMEOUT_S", 0.1)
    striking = service.kill_after_response("POST", "/other")
    striking.__enter__()
    httpx.post(f"{service.base_url}/notes", json="a")
    with pytest.raises(ServiceFailed, match="no POST /other"):
        striking.__exit__(None, None, None)
    assert service.alive
    httpx.post(f"{service.base_url}/other", json="b")
    assert service.alive, "an order that was taken back must not strike later"


def test_data_and_address_outlive_a_restart_and_not_a_wipe(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    address = service.base_url
    httpx.post(f"{address}/notes", json="a")
    service.stop()
    service.start()
    assert httpx.get(f"{address}/notes").json() == ["a"]
    with pytest.raises(ServiceFailed, match="needs the service down"):
        service.wipe()
    service.kill()
    service.wipe()
    service.restart()
    assert httpx.get(f"{address}/notes").json() == []


def test_a_command_that_fails_says_why(service_under_test: Start) -> None:
    with pytest.raises(ServiceFailed, match=r"it ended with 3[\s\S]*no such luck"):
        service_under_test(
            [sys.executable, "-c", "import sys; print('no such luck', flush=True); sys.exit(3)"]
        )


def test_a_service_that_never_gets_healthy_is_ended(service_under_test: Start) -> None:
    with pytest.raises(
        ServiceFailed, match=r"not healthy after 0.5 s: GET http://127.0.0.1:\d+/\w+ was never"
    ):
        service_under_test(PLANTED, env={"MODE": "hangs"}, start_timeout_s=0.5, **OPTIONS)
    with pytest.raises(ServiceFailed, match="the function given as health was never true"):
        service_under_test(PLANTED, health=lambda _: False, start_timeout_s=0.1, data_env="NOTES_FOLDER")


def test_a_program_that_is_not_there_is_said(service_under_test: Start) -> None:
    with pytest.raises(ServiceFailed, match="'uvicornn' cannot be started: No such file"):
        service_under_test("uvicornn app:app --port {port}")


def test_a_fixed_port_and_a_health_function(service_under_test: Start) -> None:
    from recollect.verify.suite.service import _free_port

    port = _free_port()
    service = service_under_test(
        [*PLANTED[:-1], str(port)],
        health=lambda url: _answers(f"{url}/ready"),
        data_env="NOTES_FOLDER",
        port=port,
    )
    assert service.direct_url.endswith(f":{port}")
    assert httpx.post(f"{service.base_url}/notes", json="a").status_code == 200


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False
