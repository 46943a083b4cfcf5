"""The demo, run whole: a shop on a page, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.testing.process import terminate

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

HEADWATER = str(Path(sys.executable).with_name("headwater"))
VIEWS = ("revenue", "click_rate", "payments_due", "demand", "spot_checks", "temperatures")


def rows(page: str, view: str) -> list[Any]:
    answer = httpx.get(f"{page}views/{view}", timeout=30)
    return list(answer.json()["rows"]) if answer.status_code == 200 else []


def test_the_shop_fills_every_view_and_leaves_nothing(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        demo = subprocess.Popen(
            [HEADWATER, "demo", "--rate", "10"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    try:
        assert demo.stdout is not None
        ready = re.match(r"ready (http://127\.0\.0\.1:\d+/) ", demo.stdout.readline())
        assert ready, (tmp_path / "log").read_text()
        deadline = time.monotonic() + 180
        while empty := [view for view in VIEWS if not rows(ready[1], view)]:
            assert time.monotonic() < deadline, f"nothing in {empty}:\n{(tmp_path / 'log').read_text()}"
            time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    finally:
        with demo:
            terminate(demo, 20)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("headwater-demo-")] == []
    assert "Traceback" not in (tmp_path / "log").read_text()
