"""The sides of a comparison: how each broker is started, with nothing tuned on either."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bench.figures import (
    DEBEZIUM,
    ESPER,
    EVENTSOURCING,
    FLINK,
    HAND,
    HEADWATER,
    HEADWATER_OS,
    KAFKA,
    KAFKA_FLUSH,
    PROCESS,
    RABBITMQ,
    SPARK,
)
from headwater.testing import kafka as kafka_server
from headwater.testing import rabbitmq as rabbitmq_server
from headwater.testing.jars import KAFKA_SCRIPTS
from headwater.testing.process import BrokerProcess, ProcessError

# kafka-server-start.sh gives the broker this heap unless told otherwise.
KAFKA_HEAP = "1g"
START_SECONDS = 600.0
# The server.properties that Kafka is shipped with says so, against a default of 3 s that would be most of what a
# benchmark of one consumer measures.
NO_WAIT_FOR_MEMBERS = {"group.initial.rebalance.delay.ms": "0"}


class Broker(Protocol):
    """What a scenario may ask of the broker that it measures."""

    @property
    def bootstrap(self) -> str:
        """Return the address for `bootstrap.servers`."""

    @property
    def pid(self) -> int:
        """Return the process id of the running broker."""

    @property
    def data(self) -> Path:
        """Return the directory that the broker keeps its segments in."""

    def stop(self) -> int:
        """Stop the broker with SIGTERM."""

    def kill(self) -> int:
        """Kill the broker with SIGKILL."""

    def start(self) -> object:
        """Start the broker, and return once it is ready."""

    def errors(self) -> str:
        """Return what the broker has logged."""


def headwater(directory: Path) -> Broker:
    """Return a Headwater broker as `headwater broker` starts it: for Kafka and AMQP, durability sync."""
    return _headwater(directory, "sync")


def headwater_os(directory: Path) -> Broker:
    """Return a Headwater broker whose acknowledgements do not wait for the disk, like those of Kafka's defaults."""
    return _headwater(directory, "os")


def _headwater(directory: Path, durability: str) -> Broker:
    return BrokerProcess(
        directory / "data",
        amqp=True,
        durability=durability,
        settings=NO_WAIT_FOR_MEMBERS,
        start_seconds=START_SECONDS,
    )


def kafka(directory: Path) -> Broker:
    """Return a Kafka 4.3.0 broker with its defaults, where an acknowledgement does not wait for the disk."""
    return _kafka(directory, NO_WAIT_FOR_MEMBERS)


def kafka_flush(directory: Path) -> Broker:
    """Return a Kafka broker whose topics have flush.messages=1: it acknowledges what is on the disk."""
    return _kafka(directory, {**NO_WAIT_FOR_MEMBERS, "log.flush.interval.messages": "1"})


def _kafka(directory: Path, properties: dict[str, str]) -> Broker:
    return kafka_server.RealKafka(
        directory / "data",
        heap=KAFKA_HEAP,
        java=KAFKA_SCRIPTS,
        properties=properties,
        start_seconds=START_SECONDS,
    )


class RabbitMQ(rabbitmq_server.RealRabbitMQ):
    """A RabbitMQ as a side of a comparison."""

    @property
    def bootstrap(self) -> str:
        """Return the address of its only listener, AMQP's."""
        return f"{self.host}:{self.port}"


def rabbitmq(directory: Path) -> Broker:
    """Return Debian's RabbitMQ with its defaults."""
    return RabbitMQ(directory / "data", start_seconds=START_SECONDS)


SIDES: dict[str, Callable[[Path], Broker]] = {
    HEADWATER: headwater,
    HEADWATER_OS: headwater_os,
    KAFKA: kafka,
    KAFKA_FLUSH: kafka_flush,
    RABBITMQ: rabbitmq,
    SPARK: headwater,
    PROCESS: headwater,
    DEBEZIUM: headwater,
    # These read files or write to a database; the broker beside them has nothing to do.
    HAND: headwater,
    ESPER: headwater,
    EVENTSOURCING: headwater,
    FLINK: headwater,
}


def amqp_port(broker: Broker) -> int:
    """Return the port that a broker listens on for AMQP, on this machine's own address."""
    if isinstance(broker, RabbitMQ):
        return broker.port
    if isinstance(broker, BrokerProcess) and broker.amqp_port:
        return broker.amqp_port
    raise ProcessError(f"{type(broker).__name__} does not speak AMQP")


def seconds_to_ready(broker: Broker, patience: float = START_SECONDS) -> float:
    """Start a broker that was stopped, and return the seconds until it answered a Metadata request."""
    host, _, port = broker.bootstrap.rpartition(":")
    return _seconds_until(broker, lambda: kafka_server.answers(host, int(port)), patience)


def seconds_to_amqp(broker: Broker, patience: float = START_SECONDS) -> float:
    """Start a broker that was stopped, and return the seconds until it began AMQP's handshake."""
    port = amqp_port(broker)
    return _seconds_until(broker, lambda: rabbitmq_server.answers("127.0.0.1", port), patience)


def _seconds_until(broker: Broker, answers: Callable[[], bool], patience: float) -> float:
    began = time.monotonic()
    broker.start()
    while not answers():
        if time.monotonic() - began > patience:
            raise ProcessError(f"{broker.bootstrap} started and did not answer within {patience:.0f} s")
        time.sleep(0.001)
    return time.monotonic() - began
