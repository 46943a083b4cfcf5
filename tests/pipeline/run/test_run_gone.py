"""`headwater run` when Spark's Java process is killed, alone or with everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
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
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def driver(tmp_path: Path, broker: BrokerProcess) -> Iterator[subprocess.Popen[str]]:
    app = tmp_path / "shop.py"
    app.write_text(APP)
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


def test_no_process_outlives_a_driver_that_is_killed_with_its_broker(
    driver: subprocess.Popen[str], broker: BrokerProcess
) -> None:
    source = "python_streaming_source_runner"
    deadline = time.monotonic() + 30
    while not any(source in each for each in session_of(driver.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    broker.kill()
    driver.kill()
    deadline = time.monotonic() + 15
    while left := session_of(driver.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def session_of(pid: int) -> list[str]:
    """Return the command lines of all that runs in a session."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == pid and state not in "ZX":
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found
