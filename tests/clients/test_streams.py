"""Kafka Streams, through a program of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.jars import BRIEF, KAFKA_4_3, KAFKA_STREAMS

from .brokers import Broker, eventually, unique
from .confluent import SECONDS
from .raw import Raw, end_offsets

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_streams_counts_and_joins_exactly_once_and_restores_its_state(
    java: str, broker: Broker, admin: AdminClient, coordinator: None, tmp_path: Path
) -> None:
    name = unique("streams")
    topics = [f"{name}-{each}" for each in ("lines", "users", "counts", "joined")]
    for future in admin.create_topics([NewTopic(each, num_partitions=2) for each in topics]).values():
        future.result(SECONDS)
    with Raw(broker) as raw:
        # Kafka's controller answers before its broker serves the partitions.
        eventually(
            lambda: [end_offsets(raw, each, 2) for each in topics],
            lambda seen: seen == [[0, 0]] * len(topics),
        )

    program = Path(__file__).with_name("WordCount.java")
    classes = f"{KAFKA_4_3.classpath()}:{KAFKA_STREAMS.classpath()}"
    done = subprocess.run(
        (
            *(java, *BRIEF, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes),
            *(str(program), broker.bootstrap, name, str(tmp_path)),
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "{all=100, w0=50, w1=50} by 200 records, joined 100",
        "{all=200, w0=100, w1=100} by 400 records, joined 200",
    ]
    kept = {each for each in admin.list_topics(timeout=SECONDS).topics if each.startswith(f"{name}-")}
    assert kept > {*topics, f"{name}-counts-repartition", f"{name}-counts-changelog"}
