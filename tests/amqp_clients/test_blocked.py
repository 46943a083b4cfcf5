"""A broker whose disk fills stops taking messages, tells its clients so, and takes them again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

import needs
from headwater.testing.process import BrokerProcess
from headwater.testing.rabbitmq import RealRabbitMQ

from .brokers import Broker, broker_of
from .pika_client import Inbox, opened, publish

pytestmark = pytest.mark.real

MB = 1024 * 1024
SECONDS = 20.0


@dataclass(frozen=True)
class Disk:
    """A broker, and its disk to be filled and emptied."""

    broker: Broker
    fill: Callable[[], object]
    empty: Callable[[], object]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    with needs.small_disk(tmp_path / "disk", "48m") as place:
        yield place


@pytest.fixture
def on_headwater(small_disk: Path) -> Iterator[Disk]:
    """Headwater on a small disk."""
    ballast = small_disk / "ballast"

    def fill() -> None:
        room = os.statvfs(small_disk)
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 4 * MB))

    settings = {"headwater.disk.reserve.bytes": str(8 * MB)}
    with BrokerProcess(small_disk / "data", amqp=True, settings=settings) as process:
        yield Disk(broker_of(process), fill, ballast.unlink)


@pytest.fixture
def on_rabbitmq(tmp_path: Path) -> Iterator[Disk]:
    """RabbitMQ, told that it needs more of its disk than there is, and then that it does not."""
    needs.need_rabbitmq()
    with RealRabbitMQ(tmp_path / "data") as process:
        yield Disk(
            broker_of(process),
            lambda: process.control("set_disk_free_limit", "90000GB"),
            lambda: process.control("set_disk_free_limit", "50MB"),
        )


@pytest.fixture(params=["on_headwater", "on_rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def disk(request: pytest.FixtureRequest) -> Disk:
    """Either of them."""
    found: Disk = request.getfixturevalue(request.param)
    return found


def wait(channel: BlockingChannel, seen: Callable[[], bool]) -> None:
    """Let pika work until something is seen."""
    deadline = time.monotonic() + SECONDS
    while not seen():
        assert time.monotonic() < deadline
        channel.connection.process_data_events(0.1)


def test_publishers_wait_and_consumers_go_on(disk: Disk) -> None:
    with opened(disk.broker) as channel, opened(disk.broker) as reader:
        told: list[str] = []
        connection = channel.connection
        connection.add_on_connection_blocked_callback(lambda _c, frame: told.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _c, _frame: told.append("unblocked"))
        queue = channel.queue_declare("", auto_delete=True).method.queue
        publish(channel, queue, b"before")
        connection.process_data_events(0.1)
        disk.fill()
        try:
            connection.sleep(2.5)  # Headwater looks at its disk every second or so
            publish(channel, queue, b"meanwhile")
            wait(channel, lambda: bool(told))
            assert told == ["low on disk"]
            inbox = Inbox(reader)
            inbox.consume(queue, auto_ack=True)
            assert inbox.bodies(1) == [b"before"]
            assert inbox.quiet()
        finally:
            disk.empty()
        wait(channel, lambda: told == ["low on disk", "unblocked"])
        publish(channel, queue, b"after")
        assert inbox.bodies(2) == [b"meanwhile", b"after"]
