"""Members of a share group that do anything in any order, with a crash now and then, against one entry per record."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.share.in_flight import RecordState
from headwater.broker.share.partition import AckType
from headwater.broker.share.taker import Acquired
from headwater.core.errors import ApiError

from .harness import SETTINGS, Harness

LOCK_MS, LIMIT, MAX_LOCKS = 1000, 3, 20
MEMBERS = ("a", "b", "c")
assert list(SETTINGS.values()) == [LOCK_MS, MAX_LOCKS]

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


@dataclass
class Known:
    """What the model knows of one record."""

    state: RecordState = AVAILABLE
    deliveries: int = 0
    stored: int = 0
    """How many deliveries a restart remembers."""
    owner: str = ""
    deadline_ms: int = 0

    def free(self) -> None:
        self.owner = ""
        self.state = AVAILABLE if self.deliveries < LIMIT else ARCHIVED
        self.stored = self.deliveries


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness(delivery_limit=LIMIT)
        self.batches: list[tuple[int, int]] = []
        self.known: dict[int, Known] = {}
        """The records that were ever in flight."""
        self.log_start = 0
        self.accepted: set[int] = set()

    @property
    def log_end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    @rule(size=st.integers(1, 8))
    def produce(self, size: int) -> None:
        self.batches.append((self.log_end, self.log_end + size - 1))

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 12),
        batch_size=st.integers(1, 10),
        exact=st.booleans(),
        read=st.integers(1, 4),
    )
    def fetch(self, member: str, most: int, batch_size: int, exact: bool, read: int) -> None:
        partition = self.h.partition
        partition.begin_at(self.log_start)
        offset = partition.next_offset()
        free = {at for at, known in self.known.items() if known.state is AVAILABLE and at >= self.start}
        assert offset == min(free, default=max([self.start, *(at + 1 for at in self.known)]))
        batches = [each for each in self.batches if each[1] >= offset][:read]
        in_flight = len(partition.in_flight)
        acquired = self.h.fetch(member, *batches, most=most, batch_size=batch_size, exact=exact)
        taken = [at for first, last, _ in acquired for at in range(first, last + 1)]
        assert taken == sorted(set(taken))
        new = [at for at in taken if at not in self.known]
        assert set(taken) - set(new) <= free
        if batches and (free or in_flight < MAX_LOCKS):
            assert taken[0] == offset
        if exact:
            assert len(taken) <= most
        if in_flight >= MAX_LOCKS:
            assert not new
        end = max([self.start - 1, *self.known, *new]) + 1
        if new and exact:
            # The rest of the last batch is in flight as well, and nobody's.
            end = next(last + 1 for first, last in self.batches if first <= new[-1] <= last)
        for at in range(max([self.start - 1, *self.known]) + 1, end):
            self.known[at] = Known()
        self._take(acquired, member)

    def _take(self, acquired: list[Acquired], member: str) -> None:
        for first, last, deliveries in acquired:
            for at in range(first, last + 1):
                known = self.known[at]
                known.deliveries += 1
                assert known.deliveries == deliveries <= LIMIT
                assert at not in self.accepted
                known.state, known.owner = ACQUIRED, member
                known.deadline_ms = self.h.now_ms + LOCK_MS

    @property
    def start(self) -> int:
        return max(self.log_start, self.h.partition.start_offset)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        mine = sorted(at for at, known in self.known.items() if known.owner == member)
        first = data.draw(st.sampled_from(mine or sorted(self.known)))
        last = first + data.draw(st.integers(0, 5))
        one_for_all = data.draw(st.booleans())
        kinds = data.draw(
            st.lists(
                st.sampled_from(AckType),
                min_size=1 if one_for_all else last - first + 1,
                max_size=1 if one_for_all else last - first + 1,
            )
        )
        concerned = [at for at in range(first, last + 1) if at >= self.h.partition.start_offset]
        allowed = all(at in self.known and self.known[at].owner == member for at in concerned)
        try:
            self.h.say(member, (first, last, kinds))
        except ApiError:
            assert not allowed
            return
        assert allowed
        for at in concerned:
            known = self.known[at]
            kind = kinds[0] if len(kinds) == 1 else kinds[at - first]
            if kind is AckType.RENEW:
                known.deadline_ms = self.h.now_ms + LOCK_MS
                continue
            known.free()
            if kind is not AckType.RELEASE:
                known.state = ACKNOWLEDGED if kind is AckType.ACCEPT else ARCHIVED
            if kind is AckType.ACCEPT:
                self.accepted.add(at)

    @rule(milliseconds=st.sampled_from([1, 300, 999, 1000]))
    def pass_time(self, milliseconds: int) -> None:
        self.h.pass_time(milliseconds)
        for known in self.known.values():
            if known.state is ACQUIRED and known.deadline_ms <= self.h.now_ms:
                known.free()

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.h.leave(member)
        for known in self.known.values():
            if known.owner == member:
                known.free()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = max(self.log_start, data.draw(st.integers(0, self.log_end)))
        self.h.partition.begin_at(self.log_start)
        for at in [at for at in self.known if at < self.log_start]:
            del self.known[at]

    @rule()
    def crash(self) -> None:
        """What was answered is on disk; who had what is forgotten."""
        self.h.restart()
        self.h.partition.begin_at(self.log_start)
        end = self.h.partition.in_flight.end
        for at, known in list(self.known.items()):
            if at >= end:
                del self.known[at]  # nothing of it was stored: it is new again
            elif known.state is ACQUIRED:
                known.state, known.owner, known.deliveries = AVAILABLE, "", known.stored

    @invariant()
    def the_same_is_in_flight(self) -> None:
        flight = self.h.partition.in_flight
        offset = flight.start
        for run in flight:
            assert run.first == offset <= run.last
            for at in range(run.first, run.last + 1):
                known = self.known[at]
                assert (run.state, run.deliveries, run.owner) == (known.state, known.deliveries, known.owner)
            offset = run.last + 1
        assert offset == flight.end
        unfinished = (at for at, known in self.known.items() if not known.state.is_final)
        assert flight.start <= min(unfinished, default=flight.end)
        assert all(at not in self.accepted or self.known[at].state is ACKNOWLEDGED for at in self.known)


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
