"""What the SDK of OpenTelemetry receives from stores, recall, chat and watch; and that it costs nothing without it."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from recollect import Conflict, OutcomeUnknown, StoreReplaced, __version__, open_store
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings
from recollect.message import Damaged
from recollect.recall import open_recall
from recollect.stores.sqlite.store import SqliteStore
from recollect.telemetry import FAILED_TURNS_MAX, Observer
from recollect.verify.engines import Engine
from tests.audit.memories import STORES, Memory, memory_of, said
from tests.watch.beside import beside


@dataclass
class Collected:
    spans_out: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, method: str = "") -> list[dict[str, Any]]:
        return [
            {"name": span.name, "status": span.status.status_code.name, **_attributes(span)}
            for span in self.spans_out.get_finished_spans()
            if not method or _attributes(span).get("recollect.method") == method
        ]

    def metric(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def total(self, name: str) -> float:
        return float(sum(point.value for point in self.metric(name)))


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    """The real SDK, as the application's providers for one test."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    measuring = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracing)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: measuring)
    return Collected(exporter, reader)


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Memory:
    return await memory_of(request.param, engine_of, tmp_path)


async def test_a_store_tells_what_it_did(memory: Memory, collected: Collected) -> None:
    async with open_store(memory.url) as store:
        receipt = await store.append("s", said("secret one", "two"), turn="t")
        await store.append(session="s", messages=said("three"))
        assert len(await store.history("s", last=2)) == 2
        await store.append_many({"s": said("x"), "other": said("y", "z")})
        await store.retract("s", 1)
        await store.forget("other")
        identity = store.identity
    names = [span["name"] for span in collected.spans()]
    assert names == [
        "create_memory_store",
        *["create_memory"] * 2,
        "search_memory",
        "create_memory",
        *["delete_memory"] * 2,
    ]
    [first, second] = collected.spans("append")
    system = "postgresql" if memory.kind == "postgres" else memory.kind
    assert first["gen_ai.operation.name"] == "create_memory"
    assert first["gen_ai.memory.store.id"] == identity
    assert first["gen_ai.conversation.id"] == second["gen_ai.conversation.id"] == "s"
    assert (first["gen_ai.memory.record.count"], second["gen_ai.memory.record.count"]) == (2, 1)
    assert first["recollect.durability"] == receipt.durability.value
    assert first["db.system.name"] == system
    assert collected.spans("history")[0]["gen_ai.memory.record.count"] == 2
    assert collected.spans("append_many")[0]["gen_ai.memory.record.count"] == 3
    assert collected.total("recollect.acknowledged") == 6
    assert sum(point.count for point in collected.metric("gen_ai.client.operation.duration")) == len(names)
    everything = f"{collected.spans()}{collected.reader.get_metrics_data()}"
    assert "secret one" not in everything
    scopes = {span.instrumentation_scope for span in collected.spans_out.get_finished_spans()}
    assert {(scope.name, scope.version) for scope in scopes if scope} == {("recollect", __version__)}


async def test_writes_that_go_together(memory: Memory, collected: Collected) -> None:
    async with open_store(memory.url) as store:
        await asyncio.gather(*(store.append(f"s{number}", said("x")) for number in range(20)))
    sizes = collected.metric("recollect.batch.size")
    waits = collected.metric("recollect.queue.duration")
    # A lone write is no batch; one whose script the engine does not know yet is sent twice.
    assert 10 <= sum(point.sum for point in sizes) <= 40
    assert max(point.max for point in sizes) > 1
    assert sum(point.count for point in waits) == sum(point.count for point in sizes)


async def test_what_goes_wrong_is_counted(memory: Memory, collected: Collected, tmp_path: Path) -> None:
    async with open_store(memory.url) as store:
        await store.append("s", said("one"), expect=0)
        with pytest.raises(Conflict):
            await store.append("s", said("two"), expect=0)
    failed = collected.spans("append")[-1]
    assert (failed["status"], failed["error.type"]) == ("ERROR", "Conflict")
    assert collected.total("recollect.conflicts") == 1
    assert collected.total("recollect.retries") == 0


async def test_a_damaged_record_and_another_store(collected: Collected, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    memory = Memory("sqlite", None, url, "")  # type: ignore[arg-type]
    async with open_store(url, witness=tmp_path / "witness") as store:
        await store.append("s", said("one", "two"))
        memory.sqlite("UPDATE recollect_messages SET record = x'00' WHERE place = (1 << 32 | 1)")
        [first, _] = await store.history("s")
        assert isinstance(first.message, Damaged)
    assert collected.spans("history")[0]["recollect.damaged"] == 1
    assert collected.total("recollect.damaged") == 1
    assert collected.total("recollect.replaced") == 0
    for file in tmp_path.glob("memory.db*"):
        file.unlink()
    with pytest.raises(StoreReplaced):
        await open_store(url, witness=tmp_path / "witness")
    assert collected.total("recollect.replaced") == 1
    assert collected.spans("open")[-1]["error.type"] == "StoreReplaced"


async def test_a_turn_that_is_tried_again(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        # From now on this task is alone, and its appends are not grouped.
        await store.append("s", said("zero"))
        with monkeypatch.context() as broken:
            broken.setattr(SqliteStore, "_append_now", _no_answer)
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    await store.append("s", said("one"), turn="t")
        await store.append("s", said("one"), turn="t")
        await store.append("s", said("one"), turn="t")  # nothing failed before this one
    assert [span.get("recollect.retry") for span in collected.spans("append")] == [
        None,
        None,
        True,
        True,
        None,
    ]
    assert collected.total("recollect.retries") == 2


def _no_answer(*_: Any) -> None:
    raise OutcomeUnknown("no answer")


async def test_failed_turns_take_bounded_space(collected: Collected, tmp_path: Path) -> None:
    observer = Observer("sqlite:///memory.db")
    for number in range(FAILED_TURNS_MAX + 5):
        observer._note_error(OutcomeUnknown(""), {}, "s", str(number))
    assert len(observer._failed_turns) == FAILED_TURNS_MAX


async def test_recall_and_chat(collected: Collected, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with open_recall(url) as recall:
        await recall.add("xiao", ["likes green tea"])
        await recall.search("xiao", "tea")
    assert collected.spans("search")[0]["gen_ai.memory.record.count"] == 1
    assert collected.spans("search")[0]["name"] == "search_memory"
    settings = ChatSettings(memory=url, index="none", allow_ephemeral=True)
    service = await ChatService.open(settings)
    heard = await service.hear("xiao", "s", "I am Xiao Li", "turn-1")
    await service.answer(heard)
    await service.close()
    by_name = {span.name: span for span in collected.spans_out.get_finished_spans()}
    hear, keep = by_name["recollect.hear"], by_name["recollect.keep"]
    children = {
        span.name
        for span in collected.spans_out.get_finished_spans()
        if span.parent is not None and span.parent.span_id in (hear.context.span_id, keep.context.span_id)
    }
    assert children >= {"upsert_memory", "search_memory", "create_memory"}


async def test_a_watch(collected: Collected, tmp_path: Path) -> None:
    async with beside(f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db") as watched:
        for file in tmp_path.glob("memory.db*"):
            file.unlink()
        [alarm] = await watched.told()
    [point] = collected.metric("recollect.watch.alarms")
    assert (point.attributes["recollect.alarm"], point.value) == (alarm.name, 1)
    assert collected.metric("recollect.watch.up")


@pytest.mark.parametrize("address", ["redis://:hunter2@127.0.0.1:6399/0", "postgresql://u:hunter2@h1,h2/db"])
async def test_an_address_without_its_password(address: str, collected: Collected) -> None:
    observer = Observer(address)
    assert "hunter2" not in str(observer._server)
    assert observer._server == (
        {"server.address": "127.0.0.1", "server.port": 6399} if "6399" in address else {}
    )


@pytest.mark.parametrize(
    "before",
    [
        "sys.modules['opentelemetry'] = None",  # as if it were not installed
        "pass",
        "import opentelemetry.trace, opentelemetry.metrics",  # installed, and nobody listens
        "import opentelemetry.sdk.trace as sdk; from opentelemetry import trace; "
        "trace.set_tracer_provider(sdk.TracerProvider()); os.environ['OTEL_SDK_DISABLED'] = 'true'",
    ],
)
def test_a_store_nobody_listens_to_is_the_plain_one(before: str, tmp_path: Path) -> None:
    code = f"""
import asyncio, os, sys
{before}
from recollect import open_store
async def main():
    from recollect.stores.sqlite.store import SqliteStore
    async with open_store("sqlite:///{tmp_path}/memory.db") as store:
        print(type(store) is SqliteStore, "opentelemetry.sdk.metrics" in sys.modules)
asyncio.run(main())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"], found.stderr
