"""Metrics as Prometheus reads them, and health."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.serve.broker import TopicRate
from headwater.serve.live import in_order
from headwater.views import ViewError, ViewStore

from .serve_helpers import Served, served

STATUS = {
    "name": "shop.revenue", "kind": "view", "state": "running", "rows_per_second": 12.5, "batch_ms": 250,
    "lag": {"orders": {"0": 3, "1": 4}}, "watermark": "2026-01-01T00:00:00Z", "state_bytes": 1024,
    "epoch": 5, "error": None, "holding": {}, "at": 0,
}  # fmt: skip


def samples(server: Served) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(server.client.get("/metrics").text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_tell_of_views_pipelines_and_requests(server: Served, store: ViewStore) -> None:
    store.put_status("shop.revenue", json.dumps(STATUS))
    server.get("/views")
    found = samples(server)
    assert found["headwater_view_rows", "sales"] == 4
    assert found["headwater_view_changes_total", "sales"] == 4
    assert found["headwater_pipeline_rows_per_second", "shop.revenue"] == 12.5
    assert found["headwater_pipeline_lag", "shop.revenue"] == 7
    assert found["headwater_pipeline_batch_seconds", "shop.revenue"] == 0.25
    assert found["headwater_pipeline_watermark_seconds", "shop.revenue"] == 1767225600
    assert found["headwater_http_requests_total", "200"] >= 1


def test_statuses_that_say_little_or_nothing_do_no_harm(server: Served, store: ViewStore) -> None:
    for name, text in {
        "a": "{}",
        "b": "no json",
        "c": "[1]",
        "d": '{"lag": null, "watermark": null}',
    }.items():
        store.put_status(name, text)
    assert samples(server)["headwater_pipeline_lag", "a"] == 0
    assert server.get("/health")["status"] == "ok"


def test_health_names_the_pipeline_that_failed(server: Served, store: ViewStore) -> None:
    store.put_status("shop.revenue", json.dumps(STATUS | {"state": "failed", "error": "no such column"}))
    assert server.get("/health") == {
        "status": "degraded",
        "reasons": ["the pipeline shop.revenue is failed: no such column"],
    }


def test_a_pipeline_whose_driver_was_killed_does_not_run(server: Served, store: ViewStore) -> None:
    now = time.time_ns() // 1_000_000
    store.put_status("shop.revenue", json.dumps(STATUS | {"at": now}))
    assert samples(server)["headwater_pipeline_up", "shop.revenue"] == 1
    store.put_status("shop.revenue", json.dumps(STATUS | {"at": now - 3_600_000}))
    assert samples(server)["headwater_pipeline_up", "shop.revenue"] == 0
    health = server.get("/health")
    assert health["status"] == "degraded"
    assert re.fullmatch(
        r"the pipeline shop.revenue is failed: nothing was heard of it for 3,6\d\d s: its driver is gone",
        health["reasons"][0],
    )


def test_a_pipeline_that_its_driver_has_no_more_is_no_failure(server: Served, store: ViewStore) -> None:
    now = time.time_ns() // 1_000_000
    store.put_status("shop.old", json.dumps(STATUS | {"name": "shop.old", "at": now - 3_600_000}))
    store.put_status("shop.revenue", json.dumps(STATUS | {"at": now}))
    assert samples(server)["headwater_pipeline_up", "shop.old"] == 0
    assert server.get("/health")["status"] == "ok"


def test_a_store_that_is_away_is_logged_once(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = threading.Semaphore(0)

    def expire() -> None:
        tries.release()
        raise ViewError("the store is away")

    monkeypatch.setattr("headwater.serve.site._EXPIRE_SECONDS", 0.001)
    monkeypatch.setattr(store, "expire", expire)
    with served(store):
        for _ in range(5):
            assert tries.acquire(timeout=20)
    assert [record.getMessage() for record in caplog.records if "run out" in record.getMessage()] == [
        "rows whose time has run out are still there: the store is away"
    ]


def test_every_metric_is_described() -> None:
    root = Path(__file__).parents[2]
    source = (root / "src" / "headwater" / "serve" / "monitoring.py").read_text()
    names = set(re.findall(r'"(headwater_[a-z_]+)"', source)) | {
        "headwater_alert_waiting",
        "headwater_alert_dead",
    }
    described = set(
        re.findall(r"^\| `(headwater_[a-z_]+)`", (root / "docs" / "views.md").read_text(), re.MULTILINE)
    )
    assert names == described


def test_the_page_shows_topics_by_name_and_headwaters_own_last() -> None:
    topics = [TopicRate(name) for name in ("headwater.capture", "searches", "orders", "shop.dead")]
    names = [topic.name for topic in in_order(topics)]
    assert names == ["orders", "searches", "shop.dead", "headwater.capture"]
