"""What a broker of queues can do for a client that costs next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.amqp.mix import Mix
from bench.amqp.raw import QUEUE, TAG, run_raw
from bench.brokers import Broker, amqp_port
from bench.figures import HEADWATER, RABBITMQ, AtLeast, Better, Figure
from bench.process import CpuMeter, tree_cpu_seconds
from bench.scenarios.base import Scale, Scenario

WARM_SECONDS = 2
SECONDS = 10


class AmqpRaw(Scenario):
    """Transient messages of 20 to 4,000 bytes that were encoded beforehand, acknowledged some hundred at once."""

    name = "amqp-raw"
    sides = (RABBITMQ, HEADWATER)
    figures = (
        Figure(
            "amqp-raw", "pre-encoded, 20 to 4,000 B", "messages/s", Better.HIGHER, (AtLeast(4.0, RABBITMQ),)
        ),
        Figure("amqp-raw-cpu", "broker CPU, million pre-encoded", "s", Better.LOWER, peer=RABBITMQ),
        Figure(
            "amqp-raw-ids",
            "pre-encoded, each with its message id",
            "messages/s",
            Better.HIGHER,
            peer=RABBITMQ,
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Publish and consume messages with equal properties, then such as have properties of their own."""
        port, seconds = amqp_port(broker), scale.of(SECONDS)
        with CpuMeter(broker.pid, tree_cpu_seconds) as cpu:
            alike = run_raw(port, Mix(QUEUE, TAG), WARM_SECONDS, seconds)
        # A queue of another name: a broker takes its time to delete one whose consumer has gone.
        apart = run_raw(port, Mix(f"{QUEUE}-ids", TAG, own_properties=True), WARM_SECONDS, seconds)
        return {
            "amqp-raw": alike.received_per_second,
            "amqp-raw-cpu": cpu.seconds / (alike.messages / 1e6),
            "amqp-raw-ids": apart.received_per_second,
        }
