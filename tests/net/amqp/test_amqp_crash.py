"""What queues promise when the process ends at any moment, with real processes and kill -9."""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import pytest
from pamqp import commands

from amqp_clients.brokers import Broker, broker_of
from amqp_clients.raw import PERSISTENT, Closed, Raw, body, header, method
from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

logger = logging.getLogger(__name__)

QUEUE = "numbers"
BACK_SECONDS = 1.0
"""How old an acknowledgement may be that a kill takes back. The broker writes them within 5 ms; what is on its
way there, on a machine with more to do than it can, is what the rest is for."""


class Client(threading.Thread, ABC):
    """Connects again and again until it is told to stop."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                raw = Raw(self._broker)
            except ConnectionError:
                time.sleep(0.01)
                continue
            try:
                raw.open().channel()
                self.work(raw)
            except (Closed, ConnectionError, TimeoutError):
                pass
            finally:
                raw.close()

    @abstractmethod
    def work(self, raw: Raw) -> None:
        """Use a connection until it ends or `_stopping` is set."""

    def finish(self) -> None:
        self._stopping.set()
        self.join(30)
        assert not self.is_alive()


class Publisher(Client):
    """Publishes numbers, each once, and knows which were confirmed."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.next = 0
        self.confirmed: set[int] = set()
        self._chance = chance
        super().__init__(broker)

    def work(self, raw: Raw) -> None:
        raw.call(commands.Confirm.Select(), commands.Confirm.SelectOk, 1)
        asked = method(commands.Basic.Publish(exchange="", routing_key=QUEUE), 1)
        first, done = self.next, 0
        while not self._stopping.is_set():
            frames = []
            for _ in range(self._chance.randint(1, 60)):
                payload = b"%d" % self.next
                frames += [asked, header(len(payload), properties=PERSISTENT), body(payload)]
                self.next += 1
            raw.send(*frames)
            while done < self.next - first:
                _, found = raw.receive()
                assert isinstance(found, commands.Basic.Ack), found
                assert found.delivery_tag is not None
                tags = range(done + 1 if found.multiple else found.delivery_tag, found.delivery_tag + 1)
                self.confirmed.update(first + tag - 1 for tag in tags)
                done = found.delivery_tag


class Worker(Client):
    """Consumes, acknowledges most of it at once and some of it later, and knows what came when."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.sessions: list[list[tuple[int, bool]]] = []
        self.acknowledged: list[dict[int, float]] = []
        """What was acknowledged in each session, and when."""
        self._chance = chance
        super().__init__(broker)

    def work(self, raw: Raw) -> None:
        raw.call(commands.Basic.Qos(prefetch_count=200), commands.Basic.QosOk, 1)
        raw.call(commands.Basic.Consume(queue=QUEUE), commands.Basic.ConsumeOk, 1)
        session: list[tuple[int, bool]] = []
        acknowledged: dict[int, float] = {}
        self.sessions.append(session)
        self.acknowledged.append(acknowledged)
        held: list[tuple[int, int]] = []
        while not self._stopping.is_set():
            _, found = raw.receive()
            if not isinstance(found, commands.Basic.Deliver):
                continue
            raw.receive()
            number = int(raw.receive()[1].value)
            session.append((number, bool(found.redelivered)))
            held.append((found.delivery_tag or 0, number))
            if len(held) > 60 or self._chance.random() < 0.8:
                tag, number = held.pop(self._chance.randrange(len(held)))
                raw.send(method(commands.Basic.Ack(delivery_tag=tag), 1))
                acknowledged[number] = time.monotonic()


def drain(broker: Broker) -> list[tuple[int, bool]]:
    """Take all that is left."""
    raw = Raw(broker).open().channel()
    found: list[tuple[int, bool]] = []
    while True:
        raw.send(method(commands.Basic.Get(queue=QUEUE, no_ack=True), 1))
        _, answer = raw.receive()
        if isinstance(answer, commands.Basic.GetEmpty):
            raw.close()
            return found
        raw.receive()
        found.append((int(raw.receive()[1].value), bool(answer.redelivered)))


def declare(broker: Broker) -> None:
    raw = Raw(broker).open().channel()
    raw.call(commands.Queue.Declare(queue=QUEUE, durable=True), commands.Queue.DeclareOk, 1)
    raw.close()


def test_kill_9_under_load(tmp_path: Path) -> None:
    chance = random.Random(6)
    kills: list[float] = []
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        declare(broker)
        publisher, worker = Publisher(broker, random.Random(1)), Worker(broker, random.Random(2))
        for _ in range(6):
            time.sleep(chance.uniform(0.2, 1.2))
            kills.append(time.monotonic())
            process.kill()
            process.start()
        time.sleep(0.5)
        publisher.finish()
        time.sleep(0.3)
        kills.append(time.monotonic())
        process.kill()
        worker.finish()
        process.start()
        left = drain(broker)
        assert not drain(broker)
    assert len(publisher.confirmed) > 500
    sessions = [*worker.sessions, left]
    seen: set[int] = set()
    came_back: list[float] = []
    done: dict[int, float] = {}
    for session, acknowledged in zip(sessions, [*worker.acknowledged, {}], strict=True):
        assert [n for n, again in session if not again] == sorted(n for n, again in session if not again)
        assert [n for n, again in session if again] == sorted(n for n, again in session if again)
        numbers = {number for number, _ in session}
        assert len(numbers) == len(session), "nothing twice without a crash in between"
        for number, again in session:
            if number in seen:
                assert again, f"{number} came again and was not flagged"
                if (age := done.pop(number, None)) is not None:
                    came_back.append(age)
        seen |= numbers
        if acknowledged:
            # What is acknowledged after the kill that ended the session was sent to nobody.
            kill = min(kill for kill in kills if kill > min(acknowledged.values()))
            done |= {number: max(kill - at, 0.0) for number, at in acknowledged.items()}
    assert publisher.confirmed <= seen, "a confirmed message is lost"
    logger.info(
        "of %d messages acknowledged %d came back after %d kills, the oldest from %.4f s before",
        sum(map(len, worker.acknowledged)), len(came_back), len(kills), max(came_back, default=0.0),
    )  # fmt: skip
    assert max(came_back, default=0.0) < BACK_SECONDS


def test_sigterm_brings_back_nothing_that_was_acknowledged_and_flags_exactly_what_was_delivered(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        declare(broker)
        publisher = Publisher(broker, random.Random(1))
        time.sleep(0.5)
        publisher.finish()
        raw = Raw(broker).open().channel()
        raw.call(commands.Basic.Qos(prefetch_count=50), commands.Basic.QosOk, 1)
        raw.call(commands.Basic.Consume(queue=QUEUE), commands.Basic.ConsumeOk, 1)
        for _ in range(50):
            for _ in range(3):
                raw.receive()
        raw.send(method(commands.Basic.Ack(delivery_tag=20, multiple=True), 1))
        for _ in range(20 * 3):
            raw.receive()
        assert process.stop() == 0
        raw.close()
        process.start()
        left = drain(broker)
    assert [number for number, _ in left] == list(range(20, publisher.next))
    assert [again for _, again in left] == [number < 70 for number, _ in left]


@pytest.mark.parametrize("tail", ["torn", "zeros", "cut"])
def test_tails_of_logs_that_a_crash_left(tmp_path: Path, tail: str) -> None:
    with BrokerProcess(tmp_path / "data", amqp=True) as process:
        broker = broker_of(process)
        declare(broker)
        publisher = Publisher(broker, random.Random(1))
        time.sleep(0.4)
        publisher.finish()
        process.kill()
        (log,) = (tmp_path / "data" / "queues").rglob("*.log")
        logs = [log, *(tmp_path / "data" / "state" / "__queue_positions").glob("*.log")]
        for path in logs:
            data = path.read_bytes()
            if tail == "cut":
                path.write_bytes(data[:-7])
            else:
                path.write_bytes(data + (bytes(9000) if tail == "zeros" else data[:50]))
        process.start()
        publisher = Publisher(broker, random.Random(1))
        time.sleep(0.3)
        publisher.finish()
        process.kill()
        process.start()
        numbers = [number for number, _ in drain(broker)]
    again = numbers.index(0, 1)
    assert numbers[:again] == list(range(again))
    assert set(numbers[again:]) >= publisher.confirmed


def test_many_waiting_messages_take_no_more_memory_than_few(tmp_path: Path) -> None:
    count, chunk = 300_000, 500
    with BrokerProcess(
        tmp_path / "data", amqp=True, settings={"headwater.queue.memory.bytes": "8000000"}
    ) as process:
        broker = broker_of(process)
        declare(broker)
        before = resident(process.pid)
        raw = Raw(broker).open().channel()
        raw.call(commands.Confirm.Select(), commands.Confirm.SelectOk, 1)
        asked = method(commands.Basic.Publish(exchange="", routing_key=QUEUE), 1)
        frames = (asked + header(100, properties=PERSISTENT) + body(bytes(100))) * chunk
        done = 0
        for sent in range(chunk, count + 1, chunk):
            raw.send(frames)
            while sent - done > 20 * chunk or (sent == count and done < count):
                done = raw.receive()[1].delivery_tag
        grown = resident(process.pid) - before
        assert (
            raw.call(
                commands.Queue.Declare(queue=QUEUE, durable=True), commands.Queue.DeclareOk, 1
            ).message_count
            == count
        )
        raw.close()
        process.kill()
        process.start()
        raw = Raw(broker).open().channel()
        raw.call(commands.Basic.Consume(queue=QUEUE, no_ack=True), commands.Basic.ConsumeOk, 1)
        assert count_bodies(raw, count) == count
        grown = max(grown, resident(process.pid) - before)
        raw.close()
    assert grown < 40_000_000


def count_bodies(raw: Raw, enough: int) -> int:
    """Count the messages that come, faster than by decoding their frames."""
    wanted, found, data = body(bytes(100)), 0, b""
    while found < enough:
        data = data[1 - len(wanted) :] + raw.some()
        found += data.count(wanted)
    return found


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("the process is gone")
