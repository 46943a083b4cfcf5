"""RabbitMQ's own performance tool at full speed: what it receives, and the CPU time that it costs the broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from bench.amqp.perftest import perf_test
from bench.brokers import Broker, amqp_port
from bench.figures import HEADWATER, RABBITMQ, AtLeast, Better, Figure
from bench.process import CpuMeter, tree_cpu_seconds
from bench.scenarios.base import Scale, Scenario

WARM_SECONDS = 5
SECONDS = 15
QUEUES = 4


def rate_figures(name: str, title: str, target: float) -> tuple[Figure, ...]:
    """Return what is measured of one kind of load: its rate, and the broker's CPU time for information."""
    return (
        Figure(name, f"PerfTest, {title}", "messages/s", Better.HIGHER, (AtLeast(target, RABBITMQ),)),
        Figure(f"{name}-cpu", f"broker CPU, million {title}", "s", Better.LOWER, peer=RABBITMQ),
    )


class PerfTestRate(Scenario):
    """Bodies of 100 bytes as fast as PerfTest and the broker can, the first seconds left out."""

    sides = (RABBITMQ, HEADWATER)
    options: ClassVar[tuple[str, ...]]

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Run PerfTest, metering the broker's CPU time around it."""
        with CpuMeter(broker.pid, tree_cpu_seconds) as cpu:
            run = perf_test(amqp_port(broker), WARM_SECONDS + scale.of(SECONDS), self.options)
        return {
            self.name: run.after(WARM_SECONDS).received_per_second,
            f"{self.name}-cpu": cpu.seconds / (run.received / 1e6),
        }


class Transient(PerfTestRate):
    """One producer and one consumer that acknowledges each message, all in memory."""

    name = "amqp-transient"
    figures = rate_figures(name, "transient", 2.5)
    options = ()


class Confirms(PerfTestRate):
    """Persistent messages to a durable queue: at most 200 unconfirmed, and 200 unacknowledged."""

    name = "amqp-confirms"
    figures = rate_figures(name, "persistent with confirms", 2.5)
    # PerfTest declares a durable queue where messages are persistent.
    options = ("--flag=persistent", "--confirm=200", "--qos=200")


class Queues(PerfTestRate):
    """Four queues, each with a producer and a consumer of its own."""

    name = "amqp-queues"
    figures = rate_figures(name, "through 4 queues", 2.0)
    options = (
        "--queue-pattern=q-%d", "--queue-pattern-from=1", f"--queue-pattern-to={QUEUES}",
        f"--producers={QUEUES}", f"--consumers={QUEUES}",
    )  # fmt: skip
