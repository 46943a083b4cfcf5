"""A queue with everything at once, against a model that is a sorted list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import examples
from headwater.broker.queues import lane as lane_module
from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.queue import Queue, Reason
from headwater.record.amqp.message import Message

from .queue_harness import NOW, Channel, message, new_queue, number_of


class QueueMachine(RuleBasedStateMachine):
    """Publishes, consumes, settles, gives back, waits and purges, with little memory."""

    queue: Queue

    def __init__(self) -> None:
        super().__init__()
        self._floor, lane_module._FLOOR = lane_module._FLOOR, 1200
        self.channel = Channel()
        self.now = NOW
        self.next = 0
        self.messages: dict[int, tuple[int, int | None]] = {}
        """The lane and the time of death of each message."""
        self.waiting: list[int] = []
        self.ended: list[int] = []

    def teardown(self) -> None:
        lane_module._FLOOR = self._floor

    @initialize(
        priorities=st.sampled_from([0, 0, 2]),
        single=st.booleans(),
        ttl=st.sampled_from([None, None, 50]),
        length=st.sampled_from([None, None, 4]),
        overflow=st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        delivery_limit=st.sampled_from([None, 1]),
        memory=st.sampled_from([-1, 1000, 1 << 30]),
    )
    def declare(self, priorities: int, memory: int, **arguments: Any) -> None:
        named = {
            "x-max-priority": priorities or None,
            "x-single-active-consumer": arguments["single"] or None,
            "x-message-ttl": arguments["ttl"],
            "x-max-length": arguments["length"],
            "x-overflow": arguments["overflow"],
            "x-delivery-limit": arguments["delivery_limit"],
        }
        self.queue = new_queue({k: v for k, v in named.items() if v is not None}, limit=memory)

    # -- the model -------------------------------------------------------------------------------

    def order(self, number: int) -> tuple[int, int]:
        return -self.messages[number][0], number

    def expired(self, number: int) -> bool:
        death = self.messages[number][1]
        return death is not None and death < self.now

    def bury(self) -> Iterator[tuple[int, str]]:
        entries, self.queue.dead = self.queue.dead, []
        for entry in entries:
            if entry.message.lane is not None:
                entry.message.lane.settle(entry.message)
            yield number_of(entry.message), entry.reason

    def dispatch(self) -> None:
        """Dispatch, and check that what came out is what was next, and that nobody who has room waits."""
        self.queue.dispatch(self.now)
        self.account()
        everybody = self.queue.consumers.all
        takers = everybody[:0] if self.queue.consumers.single else everybody
        if (active := self.queue.consumers.active) is not None:
            takers = [active]
        if any(taker.room(1) > 0 for taker in takers):
            assert not self.waiting, "somebody has room"

    def account(self, arrived: int | None = None) -> None:
        """Take what came out from what waits; `arrived` may have come too late for it."""
        delivered = self.channel.took()
        gone = dict(self.bury())
        for number, reason in gone.items():
            if reason == Reason.EXPIRED:
                assert self.expired(number) or self.messages[number][1] == self.now
        out = [*delivered, *gone]
        not_next = gone.keys() if arrived is None or arrived in delivered else {*gone, arrived}
        expected = [number for number in self.waiting if number not in not_next][: len(delivered)]
        assert sorted(delivered) == sorted(expected), "the next ones, however they are dealt out"
        for number in delivered:
            assert not self.expired(number)
        self.waiting = [number for number in self.waiting if number not in out]
        self.ended += gone

    # -- rules -----------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 5),
        persistent=st.booleans(),
        priority=st.sampled_from([None, 0, 1, 2, 9]),
        ttl=st.sampled_from([None, None, None, 0, 30, 500]),
    )
    def publish(self, count: int, persistent: bool, priority: int | None, ttl: int | None) -> None:
        arguments = self.queue.settings
        top = arguments.max_priority or 0
        for _ in range(count):
            number, self.next = self.next, self.next + 1
            ttls = [each for each in (ttl, arguments.message_ttl_ms) if each is not None]
            self.messages[number] = (min(priority or 0, top), self.now + min(ttls) if ttls else None)
            taken = self.queue.publish(
                message(number, persistent=persistent, priority=priority, ttl=ttl, size=60), self.now
            )
            limit = arguments.max_length
            waited = len(self.waiting)
            # A full queue that would refuse gives out what somebody has room for before it looks again.
            was_full = limit is not None and waited >= limit and arguments.overflow != "drop-head"
            if taken:
                self.waiting = sorted([*self.waiting, number], key=self.order)
            else:
                assert arguments.overflow != "drop-head"
            before = list(self.waiting)
            refused = [] if taken else [number]
            gone = {n: r for n, r in ((n, r) for n, r in self._peek_dead()) if r == Reason.MAX_LENGTH}
            self.account(arrived=number if was_full else None)
            if not taken:
                assert list(gone) == (refused if arguments.overflow == "reject-publish-dlx" else [])
                assert limit is not None
                assert limit <= len(self.waiting) <= max(limit, waited)  # more only by what was given back
                assert len(self.queue) == len(self.waiting)
            elif gone:
                assert arguments.overflow == "drop-head"
                live = [n for n in before if n not in self.waiting]
                assert set(gone) <= set(live)
            if limit is not None and taken:
                assert len(self.queue) <= limit

    def _peek_dead(self) -> list[tuple[int, str]]:
        return [(number_of(entry.message), entry.reason) for entry in self.queue.dead]

    @rule(prefetch=st.sampled_from([0, 1, 3]), no_ack=st.booleans(), priority=st.sampled_from([0, 0, 5]))
    def consume(self, prefetch: int, no_ack: bool, priority: int) -> None:
        if len(self.queue.consumers) < 4:
            tag = f"c{self.next}-{len(self.queue.consumers)}"
            self.queue.add_consumer(
                Consumer(self.queue, self.channel, tag, prefetch=prefetch, no_ack=no_ack, priority=priority)
            )
        self.dispatch()

    @precondition(lambda self: len(self.queue.consumers) > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.queue.remove_consumer(data.draw(st.sampled_from(self.queue.consumers.all)))
        self.dispatch()

    @rule()
    def turn(self) -> None:
        self.dispatch()

    @rule(room=st.sampled_from([0, 2, 1 << 40]))
    def qos(self, room: int) -> None:
        self.channel.room = room
        self.dispatch()

    def _some(self, data: st.DataObject) -> list[Message]:
        chosen: list[Message] = data.draw(
            st.lists(st.sampled_from(self.channel.unacked), min_size=1, unique_by=id)
        )
        for each in chosen:
            self.channel.release(each)
        return chosen

    @precondition(lambda self: self.channel.unacked)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        for each in self._some(data):
            self.queue.acknowledge(each)

    @precondition(lambda self: self.channel.unacked)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        chosen = self._some(data)
        for each in chosen:
            self.queue.reject(each)
        assert dict(self.bury()) == dict.fromkeys(map(number_of, chosen), Reason.REJECTED)

    @precondition(lambda self: self.channel.unacked)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        limit = self.queue.settings.delivery_limit
        for each in self._some(data):
            spent = limit is not None and each.deliveries + 1 > limit
            self.queue.requeue(each)
            number = number_of(each)
            if spent:
                assert dict(self.bury()) == {number: Reason.DELIVERY_LIMIT}
                continue
            self.waiting = sorted([*self.waiting, number], key=self.order)
            gone = dict(self.bury())
            assert set(gone.values()) <= {Reason.MAX_LENGTH}
            assert list(gone) == self.waiting[: len(gone)]
            self.waiting = self.waiting[len(gone) :]
        self.dispatch()

    @rule(ms=st.sampled_from([1, 20, 60, 1000]))
    def wait(self, ms: int) -> None:
        self.now += ms
        self.queue.expire(self.now)
        self.account()
        if self.waiting:
            assert not self.expired(self.waiting[0]), "nothing that has expired stays at the head"

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.waiting)
        self.waiting = []

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.waiting)
        assert self.queue.unacked == len(self.channel.unacked)
        assert all(taker.unacked >= 0 for taker in self.queue.consumers.all)
        assert self.queue.bytes == 60 * len(self.waiting)
        for taker in self.queue.consumers.all:
            held = sum(each.consumer is taker for each in self.channel.unacked)
            assert taker.unacked == held
            assert not taker.prefetch or held <= taker.prefetch


QueueMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
TestQueue = QueueMachine.TestCase
