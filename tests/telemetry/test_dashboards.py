"""The dashboard and the alerts ask for metrics that exist, under the names that Prometheus gives them."""

import json
import re
from pathlib import Path

import pytest
import yaml
from opentelemetry import metrics

from recollect.telemetry import Observer, WatchTelemetry
from recollect.watch.metrics import WatchMetrics

DOCS = Path(__file__).parent.parent.parent / "docs"
NAME = re.compile(r"\b((?:recollect|gen_ai_client)_[a-z_]+)(?=[\[{)\s]|$)")
UNITS = {"s": "_seconds"}
LABELS = {"recollect_durability"}


class Noting:
    """A provider and a meter that only notes what is created, by the name that Prometheus will give it."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def get_meter(self, _: str) -> "Noting":
        return self

    def create_histogram(self, *described: str) -> None:
        self._note(described, "_bucket", "_count", "_sum")

    def create_counter(self, *described: str) -> None:
        self._note(described, "_total")

    def create_gauge(self, *described: str) -> None:
        self._note(described, "")

    def _note(self, described: tuple[str, ...], *endings: str) -> None:
        metric, unit, _ = described
        base = metric.replace(".", "_") + UNITS.get(unit, "")
        self.names |= {base + ending: metric for ending in endings}


def test_every_metric_that_is_asked_for_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    noting = Noting()
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: noting)
    Observer("sqlite:///memory.db")
    WatchTelemetry()
    told = noting.names
    served = set(re.findall(r"^# TYPE (\S+)", WatchMetrics().text(), re.MULTILINE))
    board = json.loads((DOCS / "dashboards" / "grafana.json").read_text())
    alerts = yaml.safe_load((DOCS / "dashboards" / "prometheus-alerts.yaml").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = alerts["groups"][0]["rules"]
    asked += [rule["expr"] for rule in rules]
    names = {name for expression in asked for name in NAME.findall(expression)} - LABELS
    assert names
    assert names <= told.keys() | served, names - told.keys() - served
    page = (DOCS / "observability.md").read_text()
    assert {metric for metric in told.values() if f"`{metric}`" not in page} == set()
    assert {rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page} == set()
