"""The memory that connections share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.net.kafka.memory import RequestMemory, ResponseMemory
from headwater.testing.clock import ManualClock

MB = 1024 * 1024


class Loop:
    """Calls that an event loop would make."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], Any]] = []
        self.later: list[Callable[[], Any]] = []

    def call_soon(self, call: Callable[[], Any]) -> None:
        self.soon.append(call)

    def call_later(self, _seconds: float, call: Callable[[], Any]) -> object:
        self.later.append(call)
        return call

    def run(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def tick(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()


class Client:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.has_memory = False
        self.closed: str | None = None

    def granted(self) -> None:
        self.has_memory = True

    def close(self, reason: str) -> None:
        self.closed = reason

    abort = close


def memory_of(limit: int) -> tuple[Any, Loop, ManualClock]:
    loop, clock = Loop(), ManualClock()
    return RequestMemory(limit, clock, loop), loop, clock  # type: ignore[arg-type]


def test_whoever_does_not_fit_waits_for_its_turn() -> None:
    memory, loop, _ = memory_of(4 * MB)
    first, second, third = Client(), Client(), Client()
    assert memory.take(first, 3 * MB)
    assert not memory.take(second, 2 * MB)
    assert not memory.take(third, 2 * MB)
    assert (memory.held, memory.waiting) == (3 * MB, 2)
    memory.give_back(first)
    loop.run()
    assert (second.has_memory, third.has_memory) == (True, False)
    memory.give_back(second)
    loop.run()
    assert third.has_memory
    memory.give_back(third)
    assert (memory.held, memory.waiting) == (0, 0)


def test_a_request_larger_than_all_of_it_comes_alone() -> None:
    memory, _, _ = memory_of(MB)
    assert memory.take(Client(), 100 * MB)
    assert not memory.take(Client(), 10_000)


def test_huge_requests_leave_room_for_common_ones() -> None:
    memory, _, _ = memory_of(100 * MB)
    assert memory.take(Client(), 60 * MB)
    assert not memory.take(Client(), 30 * MB)
    assert memory.take(Client(), MB)


def test_without_a_limit_nobody_waits() -> None:
    memory, _, _ = memory_of(-1)
    assert all(memory.take(Client(), 1000 * MB) for _ in range(10))


def test_one_that_waits_and_leaves_is_forgotten() -> None:
    memory, loop, _ = memory_of(MB)
    first, second = Client(), Client()
    memory.take(first, MB)
    memory.take(second, MB)
    memory.give_back(second)
    memory.give_back(first)
    loop.run()
    assert not second.has_memory
    assert memory.held == 0


@pytest.mark.parametrize("seconds", [29, 31])
def test_one_that_takes_its_time_while_others_wait_is_closed(seconds: int) -> None:
    memory, loop, clock = memory_of(MB)
    slow, waiting = Client(), Client()
    memory.take(slow, MB)
    memory.take(waiting, MB)
    clock.advance(seconds * 1000)
    loop.tick()
    assert (slow.closed is not None) == (seconds > 30)
    assert waiting.closed is None


def test_one_that_takes_its_time_while_nobody_waits_is_left_alone() -> None:
    memory, loop, clock = memory_of(MB)
    slow = Client()
    memory.take(slow, MB)
    clock.advance(3_600_000)
    loop.tick()
    assert slow.closed is None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(5000, 6 * MB)), max_size=60))
def test_the_limit_holds_and_nobody_is_forgotten(steps: list[tuple[int, int]]) -> None:
    memory, loop, _ = memory_of(8 * MB)
    holding: dict[Client, int] = {}
    waiting: dict[Client, int] = {}
    for who, size in steps:
        if who == 0 and holding:
            client = next(iter(holding))
            del holding[client]
            memory.give_back(client)
            loop.run()
            for granted in [each for each in waiting if each.has_memory]:
                holding[granted] = waiting.pop(granted)
        else:
            client = Client()
            (holding if memory.take(client, size) else waiting)[client] = size
        assert memory.held == sum(holding.values()) <= 8 * MB
        assert memory.waiting == len(waiting)
    while holding:
        client, _ = holding.popitem()
        memory.give_back(client)
        loop.run()
        for granted in [each for each in waiting if each.has_memory]:
            holding[granted] = waiting.pop(granted)
    assert (memory.held, memory.waiting, waiting) == (0, 0, {})


def test_responses_get_smaller_as_memory_fills_and_end_at_the_limit() -> None:
    memory: Any = ResponseMemory(256 * MB, ManualClock())
    rooms = []
    while memory.room():
        rooms.append(memory.room())
        memory.hold(Client(), memory.room())
    assert rooms[0] == 64 * MB
    assert rooms == sorted(rooms, reverse=True)
    assert memory.held <= 256 * MB + 64 * 1024


def test_those_that_do_not_read_are_closed_for_those_that_would() -> None:
    clock = ManualClock()
    memory: Any = ResponseMemory(MB, clock)
    slow, quick = Client(), Client()
    memory.hold(slow, MB)
    clock.advance(20_000)
    memory.hold(quick, MB)
    assert memory.room() == 0
    assert (slow.closed, quick.closed) == (None, None)
    clock.advance(11_000)
    assert memory.room() == 0
    assert slow.closed is not None
    assert quick.closed is None
    memory.release(slow)
    memory.release(slow)
    memory.release(quick)
    assert memory.held == 0
    assert memory.room() > 0
