"""A lane against a list: whatever is in memory and whatever is in its log, the order is the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.queues import lane as lane_module
from headwater.broker.queues.lane import Budget, Lane
from headwater.record.amqp.message import Message

from .queue_harness import MemoryStore, message, number_of

_FLOOR = 1500
"""What a lane may hold in these tests: a handful of messages."""


class LaneMachine(RuleBasedStateMachine):
    """Pushes, takes, gives back, settles, clears and restarts."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self._floor, lane_module._FLOOR = lane_module._FLOOR, _FLOOR
        self.budget = Budget(0)
        self.lane = Lane(self.budget, MemoryStore, durable=self.durable)
        self.waiting: list[int] = []
        self.taken: list[Message] = []
        self.persistent: set[int] = set()
        self.next = 0
        self.sizes: dict[int, int] = {}

    def teardown(self) -> None:
        lane_module._FLOOR = self._floor

    @property
    def store(self) -> MemoryStore | None:
        assert self.lane.store is None or isinstance(self.lane.store, MemoryStore)
        return self.lane.store

    @rule(persistent=st.booleans(), size=st.sampled_from([5, 50, 2000]), count=st.integers(1, 4))
    def push(self, persistent: bool, size: int, count: int) -> None:
        for _ in range(count):
            self.lane.push(message(self.next, persistent=persistent, size=size))
            self.waiting.append(self.next)
            self.sizes[self.next] = size
            if persistent:
                self.persistent.add(self.next)
            self.next += 1

    @rule()
    def sync(self) -> None:
        if self.store is not None:
            self.store.sync()

    @rule(count=st.integers(1, 6))
    def pop(self, count: int) -> None:
        for _ in range(count):
            head = self.lane.head()
            found = self.lane.pop()
            if found is None:
                assert head is None
                assert not self.waiting or self.lane.wakes, "what is not shown yet is waited for"
                return
            assert head is found
            assert found.lane is self.lane
            assert number_of(found) == self.waiting.pop(0)
            self.taken.append(found)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        found = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.lane.give_back(found)
        self.waiting = sorted([*self.waiting, number_of(found)])

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.lane.settle(self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1))))

    @rule()
    def clear(self) -> None:
        assert self.lane.clear() == len(self.waiting)
        self.waiting = []

    @rule(count_bytes=st.booleans())
    def restart(self, count_bytes: bool) -> None:
        kept = [] if not self.durable else [*self.waiting, *map(number_of, self.taken)]
        self.waiting = sorted(number for number in kept if number in self.persistent)
        self.taken = []
        store = None if self.store is None or not self.durable else self.store.restarted()
        self.budget = Budget(0)
        self.lane = Lane(self.budget, MemoryStore, durable=self.durable, store=store)
        if store is not None:
            self.lane.recover(count_bytes=count_bytes)
            if count_bytes:
                assert self.lane.bytes == sum(self.sizes[number] for number in self.waiting)

    @invariant()
    def counts(self) -> None:
        assert len(self.lane) == len(self.waiting)
        assert self.budget.used == self.lane.memory >= 0
        in_memory = list(self.lane.waiting_in_memory())
        assert [number_of(found) for found in in_memory] == self.waiting[: len(in_memory)]
        if not self.waiting:
            assert self.lane.memory == 0
        if self.store is not None and self.durable:
            on_disk = {number_of(m) for i, m in enumerate(self.store.messages) if i not in self.store.settled}
            must = {n for n in [*self.waiting, *map(number_of, self.taken)] if n in self.persistent}
            assert must <= on_disk, "what is to survive is in the log until it is settled"

    @invariant()
    def memory_is_bounded(self) -> None:
        given_back = sum(len(m.frames) + 300 for _, m in self.lane._returned)
        assert self.lane.memory - given_back <= _FLOOR + 4 * 2400


class TransientLaneMachine(LaneMachine):
    """The same for a queue that does not survive."""

    durable = False


LaneMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TransientLaneMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30)
TestLane = LaneMachine.TestCase
TestTransientLane = TransientLaneMachine.TestCase


def test_the_log_is_opened_with_the_first_message_that_needs_it() -> None:
    opened: list[MemoryStore] = []

    def open_store() -> MemoryStore:
        opened.append(MemoryStore())
        return opened[-1]

    lane = Lane(Budget(1 << 20), open_store, durable=True)
    lane.push(message(0, persistent=False))
    assert not opened
    lane.push(message(1))
    assert len(opened) == 1
    assert [number_of(m) for m in opened[0].messages] == [1]


def test_bytes_of_what_is_paged_are_counted_once() -> None:
    lane = Lane(Budget(-1), MemoryStore, durable=True)
    sizes = [500] * 2000
    for number, size in enumerate(sizes):
        lane.push(message(number, size=size))
    assert lane.paged
    assert lane.bytes == sum(sizes)
    assert isinstance(lane.store, MemoryStore)
    lane.store.sync()
    taken = [lane.pop() for _ in sizes]
    assert None not in taken
    assert lane.bytes == lane.memory == 0


def test_a_write_that_failed_is_no_longer_waited_for() -> None:
    lane = Lane(Budget(-1), MemoryStore, durable=True)
    for number in range(2000):
        lane.push(message(number, size=500))
    paged = lane.paged
    assert paged
    store = lane.store
    assert isinstance(store, MemoryStore)
    del store.messages[-paged:]  # the disk was full
    store.sync()
    while lane.pop() is not None:
        pass
    assert len(lane) == 0
    lane.push(message(9999))
    store.sync()
    assert number_of(lane.pop() or message(0)) == 9999
