"""What engines have, for services: a planted service with the bug is caught, the same service without it is not."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from recollect.verify import engines
from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.suite.service import Service, ServiceFailed
from recollect.verify.suite.service_fixture import service_under_test as service_under_test

Start = Callable[..., Service]
PLANTED = [sys.executable, "-S", str(Path(__file__).with_name("planted.py")), "{port}"]
OPTIONS = {"health": "/ready", "data_env": "NOTES_FOLDER"}


def recorder_missing() -> bool:
    try:
        shim_path()
    except ShimUnavailableError:
        return True
    return False


needs_recorder = pytest.mark.skipif(recorder_missing(), reason="no disk recorder here")


def post(service: Service, note: str, path: str = "/notes", timeout_s: float = 60.0) -> httpx.Response:
    return httpx.post(f"{service.base_url}{path}", json=note, timeout=timeout_s)


def notes(service: Service) -> list[str]:
    found: list[str] = httpx.get(f"{service.base_url}/notes", timeout=60).json()
    return found


# ---- power loss


def kept_after_power_loss(service: Service, note: str) -> bool:
    with service.power_loss_after_response("POST", "/notes"):
        assert post(service, note).status_code == 200
    service.restart()
    return note in notes(service)


@needs_recorder
@pytest.mark.parametrize(("mode", "kept"), [("unsynced", False), ("honest", True)])
def test_an_answer_before_the_fsync_is_caught_by_power_loss_and_only_by_it(
    service_under_test: Start, mode: str, kept: bool
) -> None:
    service = service_under_test(PLANTED, env={"MODE": mode, "WINDOW_MS": "5"}, disk=True, **OPTIONS)
    assert [kept_after_power_loss(service, f"note {number}") for number in range(3)] == [kept] * 3
    with service.kill_after_response("POST", "/notes"):
        post(service, "killed")
    service.restart()
    assert "killed" in notes(service), "what was written survives a killed process"


@needs_recorder
@pytest.mark.parametrize(("mode", "kept"), [("unsynced", False), ("honest", True)])
def test_all_workers_lose_power_together(service_under_test: Start, mode: str, kept: bool) -> None:
    env = {"MODE": mode, "WORKERS": "3", "WINDOW_MS": "600000"}
    service = service_under_test(PLANTED, env=env, disk=True, **OPTIONS)
    pids: set[int] = set()
    deadline = time.monotonic() + 60
    while len(pids) < 2:  # the kernel spreads connections over the processes
        pids.add(post(service, "a").json()["pid"])
        assert time.monotonic() < deadline
    changed = service.power_loss()
    assert bool(changed) == (not kept)
    service.restart()
    assert bool(notes(service)) == kept


def test_power_loss_needs_a_recorded_folder(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    with pytest.raises(ServiceFailed, match="disk=True"):
        service.power_loss()
    assert service.alive


# ---- the disk


@needs_recorder
def test_a_full_disk_is_an_error_to_the_caller_and_passes(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, disk=True, **OPTIONS)
    post(service, "before")
    with service.disk_full():
        assert post(service, "meanwhile").status_code == 507
    assert post(service, "after").status_code == 200
    assert notes(service) == ["before", "after"]


@needs_recorder
def test_a_service_that_ignores_a_full_disk_is_caught(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, env={"MODE": "trusting"}, disk=True, **OPTIONS)
    with service.disk_full():
        assert post(service, "meanwhile").status_code == 200
    assert notes(service) == []


@needs_recorder
@pytest.mark.parametrize(("mode", "answered"), [("honest", 507), ("trusting", 200)])
def test_a_failed_fsync_is_no_write(service_under_test: Start, mode: str, answered: int) -> None:
    service = service_under_test(PLANTED, env={"MODE": mode}, disk=True, **OPTIONS)
    with service.failing_fsync():
        assert post(service, "meanwhile").status_code == answered
    service.power_loss()
    service.restart()
    assert notes(service) == []


@needs_recorder
def test_a_slow_disk_delays_the_answer(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, disk=True, **OPTIONS)
    with service.slow_fsync(30), pytest.raises(httpx.ReadTimeout):
        post(service, "slow", timeout_s=0.5)


# ---- the network


def test_latency_and_a_cut_in_front_of_the_service(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    with service.latency(30), pytest.raises(httpx.ReadTimeout):
        post(service, "late", timeout_s=0.5)
    with service.cut(), pytest.raises(httpx.TransportError):
        post(service, "never")
    with pytest.warns(RuntimeWarning, match=r"latency\(\) broke nothing: .*write `with …\.latency\(…\):`"):
        service.latency(30)
    with (
        pytest.raises(ValueError, match=r"latency\('1s'\): give the seconds as a number"),
        service.latency("1s"),  # type: ignore[arg-type]
    ):
        pass
    assert post(service, "after").status_code == 200
    assert "never" not in notes(service)


def test_a_cut_reaches_a_request_that_is_under_way(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, env={"WINDOW_MS": "600000"}, **OPTIONS)
    with httpx.stream("POST", f"{service.base_url}/slow", json="a", timeout=60) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces)
        with service.cut(), pytest.raises(httpx.TransportError):
            list(pieces)


def test_latency_and_a_cut_behind_the_service(service_under_test: Start) -> None:
    engine = engines.create("redis", "none")
    try:
        where = engine.start()
        service = service_under_test(PLANTED, engine=where, engine_env="ENGINE_URL", **OPTIONS)
        assert post(service, "a", "/engine").status_code == 200
        with service.engine.cut():
            assert post(service, "b", "/engine").status_code == 503
        with service.engine.latency(30):
            assert post(service, "c", "/engine").status_code == 503
        with service.engine.silent():
            assert post(service, "d", "/engine").status_code == 503
        assert post(service, "e", "/engine").status_code == 200
    finally:
        engine.close()


def test_an_engine_without_a_port_is_refused(service_under_test: Start) -> None:
    with pytest.raises(ServiceFailed, match="host and port"):
        service_under_test(PLANTED, engine="sqlite:///memory.db", **OPTIONS)


# ---- its processes, and its clock


def test_a_paused_service_answers_when_it_goes_on(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    with service.pause(), pytest.raises(httpx.ReadTimeout):
        post(service, "meanwhile", timeout_s=0.5)
    assert post(service, "after").status_code == 200


def test_a_rolling_restart_loses_no_request(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, **OPTIONS)
    answered: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answered.append(post(service, f"note {len(answered)}").status_code)

    before = service.pid
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        service.rolling_restart()
    finally:
        over.set()
        asking.join(60)
    assert service.pid != before
    assert set(answered) <= {200}
    assert len(notes(service)) == len(answered)


def test_a_rolling_restart_needs_two_ports(service_under_test: Start) -> None:
    from recollect.verify.suite.service import _free_port

    port = _free_port()
    service = service_under_test([*PLANTED[:-1], str(port)], port=port, **OPTIONS)
    with pytest.raises(ServiceFailed, match="two ports"):
        service.rolling_restart()


@pytest.mark.parametrize(("mode", "whole"), [("honest", True), ("abrupt", False)])
def test_sigterm_in_the_middle_of_an_answer(service_under_test: Start, mode: str, whole: bool) -> None:
    service = service_under_test(PLANTED, env={"MODE": mode, "WINDOW_MS": "50"}, **OPTIONS)
    said = b""
    with service.stop_during_response("POST", "/slow"):
        try:
            with httpx.stream("POST", f"{service.base_url}/slow", json="a", timeout=60) as answer:
                for piece in answer.iter_bytes():
                    said += piece
            ended = True
        except httpx.TransportError:
            ended = False
    assert not service.alive
    assert (ended, said == b"one word after another") == (whole, whole)
    service.start()
    assert (notes(service) == ["a"]) == whole


def test_a_moved_clock(service_under_test: Start) -> None:
    service = service_under_test(PLANTED, clock=True, **OPTIONS)
    week_s = 7 * 86400.0
    service.clock.move(week_s)
    assert httpx.get(f"{service.base_url}/time").json() > time.time() + week_s - 3600
    service.clock.heal()
    assert httpx.get(f"{service.base_url}/time").json() < time.time() + 3600
