"""The dashboard and the alerts ask for metrics that exist, under the names that Prometheus gives them."""

import json
import re
from pathlib import Path

import pytest
import yaml
from opentelemetry import metrics

from recollect.telemetry import Observer, WatchTelemetry
from recollect.watch.alarm import MEANINGS
from recollect.watch.metrics import WatchMetrics

DOCS = Path(__file__).parent.parent.parent / "docs"
NAME = re.compile(r"\b((?:recollect|gen_ai_client)_[a-z_]+)(?=[\[{)\s]|$)")
UNITS = {"s": "_seconds"}
LABELS = {"recollect_durability", "recollect_alarm"}


class Noting:
    """A provider and a meter that only notes what is created, by the name that Prometheus will give it."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def get_meter(self, *_: str) -> "Noting":
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


def test_the_first_event_of_its_kind_is_an_alert_too() -> None:
    """A counter that begins at 1 has not increased, as Prometheus sees it."""
    served = WatchMetrics().text().splitlines()
    assert {f'recollect_watch_alarms_total{{name="{name}"}} 0' for name in MEANINGS} <= set(served)
    alerts = yaml.safe_load((DOCS / "dashboards" / "prometheus-alerts.yaml").read_text())
    increases = [rule["expr"] for rule in alerts["groups"][0]["rules"] if "increase(" in rule["expr"]]
    assert increases
    for expression in increases:
        counter = re.search(r"increase\((\w+)", expression)
        assert counter is not None
        assert f"unless {counter[1]} offset 10m) > 0" in expression


def test_only_alarms_that_mean_loss_wake_somebody_up() -> None:
    """By the label of the watch's own page and by that of OpenTelemetry: a filter on the other one lets all pass."""
    alerts = yaml.safe_load((DOCS / "dashboards" / "prometheus-alerts.yaml").read_text())
    (lost,) = [
        rule["expr"] for rule in alerts["groups"][0]["rules"] if rule["alert"] == "RecollectMemoryLost"
    ]
    filters = re.findall(r'\{name!~"([^"]+)", recollect_alarm!~"([^"]+)"\}', lost)
    assert len(filters) == 2
    for one, other in filters:
        assert one == other
        assert set(one.split("|")) < MEANINGS.keys()
