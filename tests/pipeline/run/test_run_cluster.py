"""`headwater run --master spark://…`: the executors are processes of a cluster that see nothing but the checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from headwater.testing.class_data import spark_options
from headwater.testing.process import BrokerProcess, free_port, terminate
from headwater.views import open_store

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

APP = """
from pyspark.sql import functions as F
from headwater import App, lookup, tumbling

app = App("shop")
app.topic(
    "orders",
    "order_id string, card string, amount double, at timestamp",
    key="order_id",
    event_time="at",
    partitions=2,
)
app.table("cards", "card string, country string", key="card", partitions=1)


def kind(amount):  # of this file, which no executor can import
    return "large" if amount > 500 else "small"


@app.stream(key="order_id", partitions=1)
def kinds(orders):
    return orders.select("order_id", F.udf(kind)("amount").alias("kind"))


@app.view(key=["window", "country"])
def revenue(orders, cards):
    known = lookup(orders, cards, on="card").transform(tumbling("at", "1 minute"))
    return known.groupBy("window", "country").agg(F.sum("amount").alias("revenue"))

"""


@contextmanager
def daemon(directory: Path, kind: str, ready: str, *arguments: str) -> Iterator[None]:
    """Run one of Spark's own servers until the end of the block."""
    directory.mkdir()
    log = directory / "log"
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_WORKER_DIR": str(directory),
        "SPARK_DAEMON_JAVA_OPTS": spark_options(),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 60
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        terminate(process, 10)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with one worker."""
    port = str(free_port())
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(daemon(tmp_path / "master", "master.Master", "elected leader", "--port", port))
        limits = ("--cores", "2", "--memory", "1g")
        stack.enter_context(
            daemon(tmp_path / "worker", "worker.Worker", "Successfully registered", *limits, address)
        )
        yield address


def test_the_same_application_runs_on_a_cluster(tmp_path: Path, master: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "shop.py").write_text(APP)
    with BrokerProcess(tmp_path / "broker") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for card, country in (("a", "NL"), ("b", "DE")):
            producer.produce("cards", json.dumps({"card": card, "country": country}), key=card)
        producer.flush(10)
        for second, card, amount in (
            (0, "a", 1),
            (1, "a", 1),
            (2, "b", 7),
            (3, "a", 1),
            (4, "a", 600),
            (70, "b", 5),
        ):
            at = f"2026-01-01T12:{second // 60:02}:{second % 60:02}Z"
            value = {"order_id": str(second), "card": card, "amount": amount, "at": at}
            producer.produce("orders", json.dumps(value), key=str(second))
        assert producer.flush(10) == 0
        done = subprocess.run(
            [
                *(
                    str(Path(sys.executable).with_name("headwater")),
                    "run",
                    "shop.py",
                    "--once",
                    "--data=data",
                ),
                *(f"--broker=kafka://{broker.bootstrap}", f"--master={master}"),
                *(
                    "-c",
                    "spark.executor.memory=512m",
                    "-c",
                    f"spark.executor.extraJavaOptions={spark_options()}",
                ),
                *("-c", "spark.driver.host=127.0.0.1"),
            ],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=home,
        )
        assert (done.returncode, done.stderr) == (0, "")
    with open_store(f"sqlite:///{home}/data/views.db") as store:
        revenue = [json.loads(row.row) for row in store.rows("revenue")]
        assert [(row["country"], row["revenue"]) for row in revenue] == [
            ("DE", 7.0),
            ("NL", 603.0),
            ("DE", 5.0),
        ]
        assert json.loads(store.statuses()["shop.kinds"])["input_rows"] == 6
    assert {path.name for path in home.iterdir()} == {"shop.py", "data"}
