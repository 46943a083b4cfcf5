"""Kafka's own performance tools: rates of both directions, and the CPU time that they cost the broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench import tools
from bench.brokers import Broker
from bench.clients import create_topics
from bench.figures import HEADWATER, KAFKA, KAFKA_FLUSH, AtLeast, AtMost, Better, Figure
from bench.process import CpuMeter
from bench.scenarios.base import Scale, Scenario

RECORDS = 5_000_000
PARTITIONS = 4
TOPIC = "bench"


class Throughput(Scenario):
    """ProducerPerformance with its defaults, then ConsumerPerformance over what it produced."""

    name = "throughput"
    sides = (KAFKA, HEADWATER, KAFKA_FLUSH)
    figures = (
        Figure(
            "produced",
            "ProducerPerformance, 100 B, 4 partitions",
            "records/s",
            Better.HIGHER,
            (AtLeast(1.0), AtLeast(3.0, KAFKA_FLUSH)),
        ),
        Figure("consumed", "ConsumerPerformance over those", "records/s", Better.HIGHER, (AtLeast(1.0),)),
        Figure("produce-cpu", "broker CPU, million produced", "s", Better.LOWER, (AtMost(0.5),)),
        Figure("consume-cpu", "broker CPU, million consumed", "s", Better.LOWER, (AtMost(0.5),)),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Produce and consume, metering the broker's CPU time around each."""
        records = scale.of(RECORDS)
        create_topics(broker.bootstrap, [TOPIC], PARTITIONS)
        with CpuMeter(broker.pid) as producing:
            produced = tools.produce(broker.bootstrap, TOPIC, records)
        with CpuMeter(broker.pid) as consuming:
            consumed = tools.consume(broker.bootstrap, TOPIC, records)
        millions = records / 1e6
        return {
            "produced": produced.records_per_second,
            "consumed": consumed.records_per_second,
            "produce-cpu": producing.seconds / millions,
            "consume-cpu": consuming.seconds / millions,
        }
