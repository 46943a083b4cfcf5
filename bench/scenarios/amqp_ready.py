"""How soon a broker of queues is there, and how much memory it holds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from bench.amqp.connection import Connection
from bench.amqp.mix import Mix
from bench.amqp.perftest import perf_test
from bench.amqp.raw import QUEUE, TAG, check_first_round, consume
from bench.brokers import Broker, amqp_port, seconds_to_amqp
from bench.figures import HEADWATER, RABBITMQ, Better, Figure, Limit
from bench.process import PeakMemory, tree_resident_megabytes
from bench.scenarios.amqp_rates import SECONDS, WARM_SECONDS, Transient
from bench.scenarios.base import Scale, Scenario

SETTLE_SECONDS = 2.0


class AmqpReady(Scenario):
    """Ready on data cleanly closed; resident memory after a first client has left, and at its peak under load."""

    name = "amqp-ready"
    sides = (RABBITMQ, HEADWATER)
    figures = (
        Figure(
            "amqp-ready", "ready for AMQP after start", "s", Better.LOWER, (Limit(0.5, "s"),), peer=RABBITMQ
        ),
        Figure("amqp-idle", "resident, queues idle", "MB", Better.LOWER, (Limit(60, "MB"),), peer=RABBITMQ),
        Figure(
            "amqp-peak", "resident, peak of transient", "MB", Better.LOWER, (Limit(120, "MB"),), peer=RABBITMQ
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Start the broker a second time, let one message through, look, and look again during PerfTest."""
        broker.stop()
        ready = seconds_to_amqp(broker)
        port = amqp_port(broker)
        one = Mix(QUEUE, TAG, messages=1)
        with Connection(port) as publisher, Connection(port) as consumer:
            consume(consumer, one)
            check_first_round(publisher, consumer, one)
        time.sleep(SETTLE_SECONDS)
        idle = tree_resident_megabytes(broker.pid)
        with PeakMemory(broker.pid) as memory:
            perf_test(port, WARM_SECONDS + scale.of(SECONDS), Transient.options)
        return {"amqp-ready": ready, "amqp-idle": idle, "amqp-peak": memory.megabytes}
