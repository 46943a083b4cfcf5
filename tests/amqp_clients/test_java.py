"""RabbitMQ's Java client, through a program of our own and through PerfTest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headwater.testing.jars import BRIEF, PERF_TEST, java_command

from .brokers import Broker

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SECONDS = 120


def run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_java_client(java: str, broker: Broker, name: str, tmp_path: Path) -> None:
    source = Path(__file__).with_name("Client.java")
    silent = tmp_path / "logback.xml"
    silent.write_text("<configuration><root level='OFF'/></configuration>")
    options = (*BRIEF, f"-Dlogback.configurationFile={silent}", "-cp", PERF_TEST.classpath())
    output = run(java, *options, str(source), broker.url(), name)
    assert output.splitlines() == [
        "confirmed 1000",
        "consumed 1000 ordered true",
        "properties text/plain c 3 1099511627776 [1, two] {a=true}",
        "error 404 open false true",
        "returned 312",
        "answered HELLO",
        "cancelled mine",
        "closed",
    ]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-f", "persistent", "-c", "100", "-q", "100"), id="persistent with confirms"),
        pytest.param(("-a",), id="transient without acknowledgements"),
        pytest.param(
            ("-x", "2", "-y", "2", "-A", "10", "-q", "50", "-D", "2000"),
            id="two and two, many acknowledged at once",
        ),
        pytest.param(("-m", "20", "-q", "50"), id="a transaction for every twenty"),
        pytest.param(
            ("-mp", "delivery-mode=2", "-ms", "-qa", "x-max-length=100000", "-s", "5000"), id="larger"
        ),
    ],
)
def test_perf_test_runs_to_its_end(java: str, broker: Broker, name: str, options: tuple[str, ...]) -> None:
    count = 4_000
    output = run(
        *java_command(PERF_TEST, "com.rabbitmq.perf.PerfTest"),
        *("--uri", broker.url(), "--queue", name, "--auto-delete", "true", "--heartbeat", "10"),
        *("--pmessages", str(count), "--id", "test"),
        *(() if "-D" in options else ("--cmessages", str(count))),
        *options,
    )
    assert re.search(r"receiving rate avg: \d+ msg/s", output), output
    assert "Main thread caught exception" not in output


def test_perf_test_measures_latency_at_a_rate(java: str, broker: Broker, name: str) -> None:
    output = run(
        *java_command(PERF_TEST, "com.rabbitmq.perf.PerfTest"),
        *("--uri", broker.url(), "--queue", name, "--rate", "500", "--time", "4", "--id", "test"),
    )
    assert re.search(r"consumer latency min/median/75th/95th/99th [\d/]+ µs", output), output
