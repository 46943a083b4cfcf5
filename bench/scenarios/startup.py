"""How soon a broker answers after it was started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker, seconds_to_ready
from bench.figures import Better, Figure, Limit
from bench.scenarios.base import Scale, Scenario


class Startup(Scenario):
    """From the start of the process to the first answer to a Metadata request, on data cleanly closed."""

    name = "startup"
    figures = (Figure("ready", "ready after start", "s", Better.LOWER, (Limit(0.5, "s"),)),)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Start the broker a second time: the first one made its directory, for Kafka with a tool of its own."""
        broker.stop()
        return {"ready": seconds_to_ready(broker)}
