"""What a fetch lets go of while it waits for the disk."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.log.cold import NotCached
from headwater.net.kafka.fetch import Fetch
from headwater.wire.kafka.fetch import FetchRequest, FetchTarget


class Data:
    """As many bytes as it is long, of which one can tell when nobody holds them any more."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


class FakeLog:
    """A partition that has its data in memory, or on disk until it was waited for."""

    leader_epoch = start_offset = 0
    high_watermark = last_stable_offset = 1

    def __init__(self, *, is_cold: bool) -> None:
        self.is_cold = is_cold
        self.read_so_far: list[weakref.ref[Data]] = []

    def read(self, offset: int, size: int, *, probe: bool) -> Data:
        if self.is_cold and probe:
            segment: Any = None
            raise NotCached(segment, offset, size, size)
        data = Data(size)
        self.read_so_far.append(weakref.ref(data))
        return data


@pytest.fixture
def without_collector() -> Iterator[None]:
    """The collector of cycles is rare in a broker: what is in one stays for long."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_what_was_read_of_other_partitions_goes_while_one_is_waited_for() -> None:
    logs = [FakeLog(is_cold=False), FakeLog(is_cold=True)]
    waiting: list[tuple[list[NotCached], Callable[[], None]]] = []
    node = SimpleNamespace(
        fetch_max_bytes=1 << 20,
        throttle=SimpleNamespace(active=False),
        logs=SimpleNamespace(get=lambda name, partition: logs[partition]),
        cold=SimpleNamespace(read=lambda missing, again: waiting.append((missing, again))),
        fetch_sessions=SimpleNamespace(close=lambda number: None),
    )
    connection: Any = SimpleNamespace(node=node, room=lambda: 1 << 20)
    targets = [FetchTarget("t", partition, -1, 0, -1, -1, 1000) for partition in range(2)]
    request = FetchRequest(-1, 500, 1, 1 << 20, 0, 0, -1, targets, [], "", None)
    header: Any = SimpleNamespace(version=12, correlation_id=1)
    slot: Any = None
    fetch = Fetch(connection, slot, header, request)
    fetch.start()
    [(missing, again)] = waiting
    assert [each.size for each in missing] == [1000]
    [read] = logs[0].read_so_far
    assert read() is None
    again()  # which finds that it is still not there
    assert len(waiting) == 2
    assert all(each() is None for each in logs[0].read_so_far)
