"""A table and the topic that it is captured into, compared: for the tests of every database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from headwater.capture.reading import await_decided, records_of
from headwater.client import Cluster
from headwater.core.urls import KafkaUrl
from headwater.record.records import Record

Row = Mapping[str, Any]


def read(bootstrap: str, topic: str) -> list[Record]:
    """Return the committed records of a topic, partition after partition."""
    cluster = Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "comparing")
    try:
        await_decided(cluster, topic)
        return [
            record
            for partition in cluster.partitions(topic)
            for record in records_of(cluster, topic, partition)
        ]
    finally:
        cluster.close()


def parse(text: bytes) -> Any:
    """Return a JSON document without losing a digit of it."""
    return json.loads(text, parse_float=Decimal)


def envelopes(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return the values of a topic that have one."""
    return [parse(record.value) for record in read(bootstrap, topic) if record.value is not None]


def materialised(records: Iterable[Record]) -> dict[bytes, Row]:
    """Return the rows that records lead to, by their keys; it is checked that the records make sense."""
    rows: dict[bytes, Row] = {}
    flat = False
    for record in records:
        assert record.key is not None
        if record.value is None:
            assert flat or record.key not in rows, f"a tombstone without a delete before it: {record.key!r}"
            rows.pop(record.key, None)
            continue
        value = parse(record.value)
        flat = not ("op" in value and "source" in value)
        after = value if flat else value["after"]
        if after is None:
            assert value["op"] == "d"
            rows.pop(record.key, None)
        else:
            key = parse(record.key)
            assert {name: after[name] for name in key} == key
            rows[record.key] = after
    return rows


def key_of(row: Row, key: Sequence[str]) -> bytes:
    """Return the key that a row's records have."""
    return json.dumps({name: row[name] for name in key}, separators=(",", ":"), ensure_ascii=False).encode()


def assert_same(rows: Iterable[Row], key: Sequence[str], bootstrap: str, topic: str) -> None:
    """Fail unless a topic leads to exactly these rows; values are those that JSON has."""
    wanted = {key_of(row, key): dict(row) for row in rows}
    found = {key: dict(row) for key, row in materialised(read(bootstrap, topic)).items()}
    missing = sorted(wanted.keys() - found.keys())
    left = sorted(found.keys() - wanted.keys())
    differ = {
        key: (wanted[key], found[key]) for key in wanted.keys() & found.keys() if wanted[key] != found[key]
    }
    assert (missing, left, differ) == ([], [], {})


def eventually(check: Callable[[], None], seconds: float = 30.0) -> None:
    """Return once a check passes; after the time, fail as it does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            check()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
