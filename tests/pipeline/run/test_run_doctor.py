"""One sentence about a query."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.pipeline import doctor as module
from headwater.pipeline.doctor import diagnose

NOW = 1_000_000
STATUS = {
    "state": "running",
    "rows_per_second": 800.0,
    "input_rows_per_second": 790.0,
    "input_rows": 40_000,
    "batch_ms": 120,
    "lag": {"orders": {"0": 3, "1": 2}},
    "watermark": "2026-01-01T00:00:00.000Z",
    "epoch": 7,
    "error": None,
    "holding": None,
    "at": NOW,
}
HELD = {"topic": "orders", "partition": 1, "high": "2026-01-01T00:00:01.000Z", "since": NOW - 180_000}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "q is healthy: 800 rows/s in batches of 120 ms, 5 records behind."),
        (
            {"dropped_matches": 1200, "refused_searches": 3},
            "q is healthy: 800 rows/s in batches of 120 ms, 5 records behind."
            " It has given up 1,200 partial matches: give the pattern a within=, or a higher limit=."
            " It could not read 3 stored searches: unreadable_searches tells which, and why.",
        ),
        (
            {"rows_per_second": 0.0},
            "q is about to read 5 records, or in its batch with them, after 40,000 so far.",
        ),
        (
            {"rows_per_second": 0.0, "lag": {"orders": {"0": 0, "1": 0}}},
            "q is idle: it has read all 40,000 records so far, and its watermark is 2026-01-01T00:00:00.000Z.",
        ),
        ({"epoch": None, "lag": {"orders": {"0": 0}}}, "q waits for its first records."),
        ({"epoch": None}, "q starts, with 5 records to read."),
        (
            {"state": "restarting", "error": "no space left."},
            "q fails, and is started again shortly: no space left.",
        ),
        ({"error": "no space left"}, "q runs again after a failure: no space left."),
        (
            {"holding": HELD},
            "q is held by partition 1 of orders, which for 3 min brought nothing newer than"
            " 2026-01-01T00:00:01.000Z: its windows and joins wait there.",
        ),
        (
            {"lag": {"orders": {"0": 3, "1": 9000}}, "input_rows_per_second": 900.0},
            "q is behind by 9,003 records, most of them in partition 1 of orders:"
            " records arrive at 900/s and it does 800/s, so it falls further behind.",
        ),
        (
            {"lag": {"orders": {"0": 16_000}}},
            "q is behind by 16,000 records, most of them in partition 0 of orders:"
            " it does 800 rows/s, 20 s of work.",
        ),
        (
            {"at": NOW - 600_000},
            "q is not running: nothing was heard of it for 10 min, and 5 records waited for it then.",
        ),
        ({"state": "stopped", "lag": {}}, "q was stopped 0 s ago."),
    ],
)
def test_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert diagnose("q", STATUS | changes, NOW) == sentence


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0


def test_an_application_without_queries(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    app.write_text('from headwater import App\napp = App("shop")\napp.topic("orders", "id string")\n')
    done = CliRunner().invoke(main, ["doctor", str(app), f"--data={tmp_path}"])
    assert (done.exit_code, done.stdout) == (
        0,
        "shop has no queries: it declares no stream, view, alert or sink.\n",
    )
