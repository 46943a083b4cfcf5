"""The orders, the processes and the readers of the scenarios that compare pipelines."""

from __future__ import annotations

import doctest
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import bench.spark.child
import bench.spark.orders
from bench.figures import HEADWATER, SPARK
from bench.process import tree, tree_cpu_seconds
from bench.scenarios import SCENARIOS
from bench.scenarios.spark_read import SparkRead
from bench.spark.child import PipelineError, best_pass, fastest, ready
from bench.spark.orders import fill, orders
from bench.spark.watch import TableReader, ViewReader
from headwater.testing.process import BrokerProcess
from headwater.views import Change, ViewDefinition, open_store

TABLE = "CREATE TABLE spending (user_id TEXT PRIMARY KEY, last_order TEXT)"


@pytest.mark.parametrize("module", [bench.spark.child, bench.spark.orders])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_orders_are_ninety_bytes_and_every_one_is_a_group() -> None:
    made = [(len(value), json.loads(value)) for _, value in orders(5_000)]
    assert 85 < sum(size for size, _ in made) / len(made) < 95
    # A window is 10 s, so it ends where the last digit of the seconds does.
    assert len({(order["placed_at"][:-2], order["user_id"]) for _, order in made}) == len(made)


def test_a_scenario_knows_its_side_and_the_brokers_scenarios_need_not() -> None:
    assert SparkRead().on(SPARK).side == SPARK
    for scenario in SCENARIOS:
        if not hasattr(scenario, "side"):
            assert scenario.on(HEADWATER) is scenario


@pytest.mark.parametrize("output", ["", "ready\n", "{}\n", '[{"speed": 1}]\n'])
def test_a_process_that_measured_nothing_is_refused(output: str) -> None:
    with pytest.raises(PipelineError, match="no line of measurements"):
        fastest(output)


def test_a_command_is_ended_after_its_block(tmp_path: Path) -> None:
    script = "import time; print('starting'); print('ready now', flush=True); time.sleep(600)"
    with ready([sys.executable, "-c", script], tmp_path / "log") as process:
        assert process.poll() is None
    assert process.returncode is not None


def test_a_command_that_fails_before_it_is_ready_shows_why(tmp_path: Path) -> None:
    with (
        pytest.raises(PipelineError, match="no such topic"),
        ready([sys.executable, "-c", "raise SystemExit('no such topic')"], tmp_path / "log"),
    ):
        pass


def test_the_cpu_time_of_a_tree_counts_children() -> None:
    busy = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass\n"
    before = tree_cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", f"{busy}input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in tree(os.getpid())
        child.communicate(b"\n")
    assert tree_cpu_seconds(os.getpid()) - before >= 0.25


def test_a_table_is_read_when_it_has_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "views.db") as writer:
        writer.execute(TABLE)
        reader = TableReader(tmp_path / "views.db")
        assert list(reader.changed()) == []
        writer.execute("INSERT INTO spending VALUES ('7', '1000007')")
        writer.commit()
        assert list(reader.changed()) == [("7", "1000007")]
        assert list(reader.changed()) == []
    writer.close()
    reader.close()


def test_a_view_is_followed_by_its_feed(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        store.define(ViewDefinition("spending", ("user_id",)))
        reader = ViewReader(store, "spending")
        for epoch, last in enumerate(("1000007", "1000009")):
            store.commit(
                "q", epoch, "spending", [Change("7", json.dumps({"user_id": "7", "last_order": last}))]
            )
            assert list(reader.changed()) == [("7", last)]
            assert list(reader.changed()) == []


@pytest.mark.real
@pytest.mark.parametrize("side", [HEADWATER, SPARK])
def test_each_side_measures_in_a_process_of_its_own(side: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        fill(broker.bootstrap, 1_000)
        best = best_pass(side, "json", broker.bootstrap, tmp_path / "scratch", orders=1_000, passes=2)
    assert best.rate > 0
    assert best.cpu > 0
