"""A warehouse that `headwater run` writes through Spark: killed, built anew under load, compared with the database."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

from .conftest import application
from .parquet import ask
from .running import command, listed, made, ready, run, started, verified, written_to

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture
def spark_app(tmp_path: Path, table: str) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(application(tmp_path, table, "files").replace(', engine="process"', ""))
    return path


def test_killed_and_built_anew_under_load(broker: BrokerProcess, tmp_path: Path, spark_app: Path) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    shop = made(tmp_path / "shop.db", 300)
    with started("capture", "run", spark_app, address), written_to(tmp_path / "shop.db") as count:
        for place in ("derived.before_link:2", "warehouse.after_commit:2"):
            with started("run", spark_app, address, data, HEADWATER_KILL_AT=place) as process:
                assert process.wait(300) == -signal.SIGKILL
        assert count[0] > 100
    assert ask(files(tmp_path, "count(*)"))[0][0] > 0
    # A worker that dies fails its query, and the driver starts it again.
    killed = {"HEADWATER_KILL_AT": "warehouse.in_task", "HEADWATER_KILLED": str(tmp_path)}
    with started("run", spark_app, address, data, **killed) as process:
        with started("capture", "run", spark_app, address), written_to(tmp_path / "shop.db"):
            ready(process)
            rebuilding = command("derived", "rebuild", spark_app, "files", address, data, "--master=local[1]")
            rebuilt = subprocess.run(rebuilding, capture_output=True, text=True, timeout=300)
            assert rebuilt.returncode == 0, rebuilt.stderr
            assert "building files: " in rebuilt.stderr
            assert "files is built anew" in rebuilt.stderr
            before = offsets(tmp_path)
            until("the query goes on with the new one", lambda: offsets(tmp_path) != before)
        run("capture", "run", spark_app, address, "--once")
        until("all is read", lambda: listed(spark_app, address, data)[0]["behind"] == 0)
        assert process.poll() is None
    assert process.returncode == 0
    assert (tmp_path / "warehouse.in_task").exists()
    [said] = verified(spark_app, address, data, "--store", "files")
    assert said["equal"], said
    assert said["rows"] == ask(files(tmp_path, "count(*)"))[0][0] > 100
    [store] = listed(spark_app, address, data)
    assert (store["kind"], store["rows"], store["behind"], store["unreadable"]) == (
        "warehouse", said["rows"], 0, None,
    )  # fmt: skip
    left = run("derived", "run", spark_app, address, data)
    assert "files: written by Spark, in `headwater run" in left.stderr
    # Nobody captures these.
    [(some,)] = ask(files(tmp_path, "min(id)"))
    shop.execute("UPDATE users SET age = -1 WHERE id = ?", (some,))
    shop.execute("INSERT INTO users VALUES (5000, 'new', NULL)")
    shop.close()
    [said] = verified(spark_app, address, data, "--store", "files", status=1)
    assert {(each["kind"], each["key"]) for each in said["first"]} == {
        ("different", str(some)),
        ("missing", "5000"),
    }


def files(directory: Path, asked: str) -> str:
    return f"SELECT {asked} FROM read_parquet('{directory}/derived/files/current/*.parquet')"


def offsets(directory: Path) -> dict[str, int]:
    said = json.loads((directory / "derived" / "files" / "current" / "_position.json").read_text())
    found: dict[str, int] = said["position"]["offsets"]
    return found


def until(what: str, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
