"""The figures of `headwater derived run --metrics`, on a real broker."""

from __future__ import annotations

import re
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.testing.process import BrokerProcess, free_port

from .running import ready, run, started

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def get(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def figures(port: int) -> dict[tuple[str, str], float]:
    """Return the figures by name and store."""
    found = re.findall(r'^headwater_derived_(\w+)\{store="(\w+)"\} (\S+)$', get(port, "/metrics")[1], re.M)
    return {(name, store): float(value) for name, store, value in found}


def test_lag_rows_and_failures_are_told_by_store(broker: BrokerProcess, table: str, tmp_path: Path) -> None:
    app_file = tmp_path / "shop.py"
    app_file.write_text(
        "from headwater import App\n"
        f'app = App("shop{table}")\n'
        f'app.table("{table}", "id bigint, name string", key="id", partitions=1)\n'
        f'app.cache("names", of="{table}")\n'
        f'app.cache("away", of="{table}", url="redis://127.0.0.1:{free_port()}/0")\n'
    )
    address, port = f"--broker=kafka://{broker.bootstrap}", free_port()
    run("topics", "create", table, "--partitions=1", address)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5):
        producer.produce(table, f'{{"id":{number}}}', str(number))
    producer.produce(table, b"no json", b"9")
    assert producer.flush(20) == 0
    options = (address, f"--data={tmp_path}", f"--metrics=127.0.0.1:{port}")
    with started("derived", "run", app_file, *options) as process:
        ready(process)
        told = figures(port)
        assert (told["rows_total", "names"], told["unreadable_total", "names"]) == (5, 1)
        assert (told["up", "names"], told["retries_total", "names"], told["lag_records", "names"]) == (
            1,
            0,
            0,
        )
        assert told["commits_total", "names"] >= 1
        assert 0 < told["lag_seconds", "names"] < 60
        assert told["retries_total", "away"] >= 1
        assert (told["up", "away"], told["rows_total", "away"]) == (0, 0)
        status, said = get(port, "/health")
        assert status == 503
        assert "does not answer" in said

        producer.produce(table, b'{"id":7}', b"7")
        assert producer.flush(20) == 0
        deadline = time.monotonic() + 20
        while figures(port)["rows_total", "names"] != 6:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        failed = run("derived", "run", app_file, *options, status=1)
        assert f"127.0.0.1:{port} cannot be listened on for --metrics" in failed.output
