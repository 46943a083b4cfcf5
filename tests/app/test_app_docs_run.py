"""The application of docs/applications.md does what its page says, on Spark."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .conftest import Write

pytestmark = pytest.mark.real

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "applications.md").read_text()


def test_the_application_of_the_page_runs(
    write: Write, java: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from headwater.testing import advance, run_app

    (source,) = re.findall(r"^```python\n(# shop.py\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    orders = [
        {"order_id": "1", "country": "de", "amount": 600.0, "placed_at": "2026-11-15T10:00:10Z"},
        {"order_id": "2", "country": "de", "amount": 5.0, "placed_at": "2026-11-15T10:00:20Z"},
        {"order_id": "3", "country": "fr", "amount": 7.0, "placed_at": "2026-11-15T10:01:00Z"},
    ]
    payments = [{"order_id": "2", "paid_at": "2026-11-15T10:05:00Z"}]
    outputs = run_app(
        write(source), {"orders": [orders, advance("1 hour")], "payments": [payments, advance("1 hour")]}
    )
    revenue = {(row["window"]["start"], row["country"]): row["revenue"] for row in outputs["revenue"]}
    ten = datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert revenue == {(ten, "de"): 605.0, (ten.replace(minute=1), "fr"): 7.0}
    status = {row["order_id"]: row["status"] for row in outputs["order_status"]}
    assert status == {"1": "unpaid", "2": "paid", "3": "unpaid"}
    assert [row["order_id"] for row in outputs["large_and_unpaid"]] == ["1"]
    assert sorted(capsys.readouterr().out.splitlines()) == ["1 unpaid", "2 paid", "3 unpaid"]
