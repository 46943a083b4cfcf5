"""A share group at work while the broker is killed: what was accepted is done, all else is delivered again."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from headwater.testing.process import BrokerProcess

from .brokers import Broker, eventually
from .raw import Closed, Raw, batch, produce
from .share import ACCEPT, RELEASE, Member, begin_at

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]

RECORDS, BATCH = 4000, 20
KILLS = 6
GROUP, TOPIC = "crowd", "work"


class Crowd:
    """What the members have seen, together."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.lock = threading.Lock()
        self.accepted: set[int] = set()
        self.unanswered: set[int] = set()
        self.again: list[int] = []
        self.released = 0
        self.done = threading.Event()

    def work(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self.done.is_set():
            try:
                with Member(self.broker, GROUP, TOPIC) as member:
                    member.join()
                    while not self.done.is_set():
                        self._turn(member, draw)
            except (OSError, Closed, AssertionError):
                time.sleep(0.05)  # killed, or on its way up again

    def _turn(self, member: Member, draw: random.Random) -> None:
        acquired = member.fetch(
            max_records=draw.choice([1, 30, 200]), share_acquire_mode=draw.randrange(2)
        ).acquired
        for first, last, deliveries in acquired:
            kinds = [
                RELEASE if deliveries < 3 and draw.random() < 0.1 else ACCEPT for _ in range(first, last + 1)
            ]
            accepted = {first + i for i, kind in enumerate(kinds) if kind == ACCEPT}
            with self.lock:
                self.again += sorted(self.accepted & set(range(first, last + 1)))
                self.unanswered |= accepted
            code, of_partition = member.acknowledge((first, last, kinds))
            assert (code, of_partition) == (ErrorCode.none, ErrorCode.none)
            with self.lock:
                self.accepted |= accepted
                self.released += len(kinds) - len(accepted)


def test_what_was_accepted_stays_accepted_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    settings = {"group.share.delivery.count.limit": "10", "group.share.record.lock.duration.ms": "30000"}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:
        broker = Broker("killed", process.host, process.port)
        with Raw(broker) as raw:
            topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
            raw.call("create_topics", 7, topics=[topic], timeout=10_000)
            begin_at(raw, GROUP, TOPIC)
            for _ in range(RECORDS // BATCH):
                produce(raw, TOPIC, batch(BATCH))
        crowd = Crowd(broker)
        threads = [threading.Thread(target=crowd.work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(KILLS):
                eventually(
                    lambda: len(crowd.accepted),
                    lambda seen, wanted=number * RECORDS // (KILLS + 1): seen >= wanted,  # type: ignore[misc]
                    60,
                )
                process.kill()
                process.start()
            eventually(lambda: _start_offset(broker), lambda seen: seen == RECORDS, 60)
        finally:
            crowd.done.set()
            for thread in threads:
                thread.join(20)
    assert crowd.again == []
    assert crowd.accepted | crowd.unanswered == set(range(RECORDS))
    assert crowd.released > RECORDS // 50


def _start_offset(broker: Broker) -> int:
    with Raw(broker) as raw:
        [group] = raw.call(
            "describe_share_group_offsets", 1, groups=[{"group_id": GROUP, "topics": None}]
        ).groups
    [[partition]] = [topic.partitions for topic in group.topics]
    return int(partition.start_offset)
