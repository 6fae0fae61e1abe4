"""The example of `docs/service-under-test.md`, as it stands there."""

import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from recollect.verify.suite.service import Service
from recollect.verify.suite.service_fixture import service_under_test as service_under_test

APP = Path(__file__).parent


@pytest.fixture
def service(service_under_test: Callable[..., Service]) -> Service:
    return service_under_test(
        [sys.executable, "-m", "uvicorn", "example_app:app", "--app-dir", str(APP), "--port", "{port}"],
        health="/health",
        data_env="MYAPP_DATA",
    )


def test_an_answered_note_survives_the_process(service: Service) -> None:
    with service.kill_after_response("POST", "/notes"):
        answer = httpx.post(f"{service.base_url}/notes", json={"text": "my name is Xiao Li"})
        assert answer.status_code == 200
    service.restart()
    assert httpx.get(f"{service.base_url}/notes").json() == ["my name is Xiao Li"]
