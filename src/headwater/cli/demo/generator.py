"""The demo's producer, in a process of its own.

python -m headwater.cli.demo.generator BOOTSTRAP VISITS_PER_SECOND SHOP_DATABASE
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from headwater.cli.demo.catalogue import Catalogue
from headwater.cli.demo.customers import Shop

_TICK_SECONDS = 0.05
_REPORT_SECONDS = 30.0
_REPRICE_SECONDS = 10.0


class Generator:
    """Produces what happens in the shop, as it happens."""

    def __init__(self, bootstrap: str, rate: float, database: Path) -> None:
        self._random = random.Random()
        self._catalogue = Catalogue(database)
        self._shop = Shop(random.Random(), time.time(), rate)
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
        self._sent = self._failed = 0
        self.running = True

    def stop(self, _signal: int, _frame: object) -> None:
        """End soon."""
        self.running = False

    def run(self) -> None:
        """Produce until `stop`."""
        sys.stdout.write("ready customers and sensors\n")
        sys.stdout.flush()
        report = time.monotonic() + _REPORT_SECONDS
        reprice = time.monotonic() + _REPRICE_SECONDS
        while self.running:
            for event in self._shop.until(time.time()):
                value = json.dumps(event.value).encode()
                self._producer.produce(event.topic, value, key=event.key, on_delivery=self._delivered)
            self._producer.poll(0)
            time.sleep(_TICK_SECONDS)
            if time.monotonic() > reprice:
                self._catalogue.reprice(self._random)
                reprice += _REPRICE_SECONDS
            if time.monotonic() > report:
                self._report()
                report += _REPORT_SECONDS
        self._producer.flush(2)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._sent += 1
        else:
            self._failed += 1

    def _report(self) -> None:
        failed = f", {self._failed:,} failed" if self._failed else ""
        sys.stdout.write(f"{self._sent:,} events sent{failed}\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Run the producer until SIGTERM."""
    bootstrap, rate, database = arguments
    generator = Generator(bootstrap, float(rate), Path(database))
    signal.signal(signal.SIGTERM, generator.stop)
    generator.run()


if __name__ == "__main__":
    main(sys.argv[1:])
