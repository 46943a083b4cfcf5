"""How long one message takes from a producer to a consumer when there is little to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.amqp.perftest import perf_test
from bench.brokers import Broker, amqp_port
from bench.figures import HEADWATER, RABBITMQ, AtMost, Better, Figure
from bench.scenarios.base import Scale, Scenario

RATE = 1_000
# At this rate a JVM takes longer to compile what matters than at full speed.
WARM_SECONDS = 10
SECONDS = 20


class AmqpLatency(Scenario):
    """A thousand transient messages a second, from PerfTest's producer to its consumer."""

    name = "amqp-latency"
    sides = (RABBITMQ, HEADWATER)
    figures = (
        Figure(
            "amqp-latency-p50", "queue latency at 1,000/s, p50", "µs", Better.LOWER, (AtMost(0.8, RABBITMQ),)
        ),
        Figure(
            "amqp-latency-p99", "queue latency at 1,000/s, p99", "µs", Better.LOWER, (AtMost(1.0, RABBITMQ),)
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Run PerfTest at an even pace, and take the percentiles of the seconds after the warm-up."""
        run = perf_test(amqp_port(broker), WARM_SECONDS + scale.of(SECONDS), (f"--rate={RATE}",))
        measured = run.after(WARM_SECONDS)
        return {"amqp-latency-p50": measured.median_micros, "amqp-latency-p99": measured.p99_micros}
