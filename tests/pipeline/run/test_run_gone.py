"""`headwater run` when Spark's Java process is killed, alone or with everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipeline.session import GONE
from headwater.testing.process import BrokerProcess
from headwater.views import open_store

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

APP = """
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, amount double", key="order_id", partitions=1)


@app.view(key="order_id")
def large(orders):
    return orders.where("amount >= 10")
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    app = tmp_path / "shop.py"
    app.write_text(APP)
    with BrokerProcess(tmp_path / "broker") as broker:
        command = [str(Path(sys.executable).with_name("headwater")), "run", str(app), "--master=local[1]"]
        command += [f"--data={tmp_path / 'data'}", f"--broker=kafka://{broker.bootstrap}"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore::FutureWarning"},
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready shop: large\n"
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_a_killed_jvm_is_one_line_and_a_failure(driver: subprocess.Popen[str], tmp_path: Path) -> None:
    [jvm] = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    _, said = driver.communicate(timeout=120)
    assert (driver.returncode, said) == (1, f"Error: {GONE}\n")
    with open_store(f"sqlite:///{tmp_path / 'data' / 'views.db'}") as store:
        status = json.loads(store.statuses()["shop.large"])
    assert (status["state"], status["error"]) == ("failed", GONE)


def test_a_signal_to_the_whole_group_is_a_clean_end(driver: subprocess.Popen[str]) -> None:
    os.killpg(driver.pid, signal.SIGTERM)
    _, said = driver.communicate(timeout=120)
    assert (driver.returncode, said) == (0, "")
