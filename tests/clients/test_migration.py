"""Groups that move between the classic and the consumer protocol while they are at work."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kio.schema.errors import ErrorCode

from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .brokers import Broker, eventually
from .confluent import SECONDS, consumer, produce
from .conftest import SETTINGS
from .raw import Raw, topic_id
from .test_restart import create
from .tools import VERIFIABLE_CONSUMER, Ended, Tools

pytestmark = pytest.mark.real


def group_type(raw: Raw, group: str) -> str:
    [found] = [each for each in raw.call("list_groups", 5).groups if each.group_id == group]
    return str(found.group_type).lower()


# -- with confluent-kafka ------------------------------------------------------------------------


UNDER_WAY = ("_NO_OFFSET", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH")


@dataclass
class Worker:
    """A consumer that commits what it has read before it goes on, and before it gives a partition up."""

    made: Consumer
    seen: list[tuple[int, int]]
    owns: set[int] = field(default_factory=set)

    def subscribe(self, topic: str) -> None:
        def assigned(made: Consumer, partitions: list[TopicPartition]) -> None:
            self.owns |= {each.partition for each in partitions}

        def revoked(made: Consumer, partitions: list[TopicPartition]) -> None:
            self.commit()
            self.owns -= {each.partition for each in partitions}

        self.made.subscribe([topic], on_assign=assigned, on_revoke=revoked)

    def work(self) -> Worker:
        message = self.made.poll(0.02)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.seen.append((partition, offset))
            self.commit()
        return self

    def commit(self) -> None:
        try:
            self.made.commit(asynchronous=False)
        except KafkaException as error:
            # Nothing new, or a rebalance is under way: it commits again before it gives anything up.
            if error.args[0].name() not in UNDER_WAY:
                raise


@dataclass
class Shift:
    """The workers of one group on one topic, and what they have read together."""

    broker: Broker
    topic: str
    group: str
    seen: list[tuple[int, int]] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    sent: int = 0

    @contextmanager
    def at_work(self, protocol: str, **config: Any) -> Iterator[Worker]:
        if protocol == "classic":
            config |= {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
        with consumer(self.broker, self.group, group_protocol=protocol, **config) as made:
            worker = Worker(made, self.seen)
            worker.subscribe(self.topic)
            self.workers.append(worker)
            yield worker
            self.workers.remove(worker)

    def settle(self) -> list[set[int]]:
        """Work until everybody has a share, and no partition two owners or none."""

        def shares() -> list[set[int]]:
            for worker in self.workers:
                worker.work()
            owned = [partition for worker in self.workers for partition in worker.owns]
            assert len(owned) == len(set(owned))
            return [set(worker.owns) for worker in self.workers]

        return eventually(
            shares, lambda seen: set().union(*seen) == {0, 1, 2, 3} and all(seen), seconds=SECONDS
        )

    def send_and_read(self, count: int = 12) -> None:
        for partition in range(4):
            produce(self.broker, self.topic, [b"v"] * (count // 4), partition=partition)
        self.sent += count // 4
        expected = {(partition, offset) for partition in range(4) for offset in range(self.sent)}

        def seen() -> set[tuple[int, int]]:
            for worker in self.workers:
                worker.work()
            return set(self.seen)

        eventually(seen, lambda found: found == expected, seconds=SECONDS)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_rolling_upgrade_and_back(
    broker: Broker, raw: Raw, wide_topic: str, group: str, strategy: str
) -> None:
    assert rolled(Shift(broker, wide_topic, group), raw, strategy) == [
        "classic",
        "consumer",
        "consumer",
        "consumer",
        "classic",
    ]


def test_librdkafkas_cooperative_consumers_move_too(tmp_path: Path) -> None:
    # Kafka takes what librdkafka's assignor tells its members for a custom assignor's, in most generations.
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as process:
        broker = Broker("own", process.host, process.port)
        create(broker, "wide", partitions=4)
        with Raw(broker) as raw:
            kinds = rolled(Shift(broker, "wide", "group"), raw, "cooperative-sticky")
    assert set(kinds) == {"classic", "consumer"}


def rolled(shift: Shift, raw: Raw, strategy: str) -> list[str]:
    """Move a group's consumers to the consumer protocol one by one, and back; return its types on the way."""
    classic = {"partition_assignment_strategy": strategy}
    kinds = []
    with ExitStack() as stack:
        running = [stack.enter_context(ExitStack()) for _ in range(2)]
        for each in running:
            each.enter_context(shift.at_work("classic", **classic))
        for place, protocol in [(0, ""), (0, "consumer"), (1, "consumer"), (0, "classic"), (1, "classic")]:
            if protocol:
                running[place].close()
                running[place].enter_context(
                    shift.at_work(protocol, **(classic if protocol == "classic" else {}))
                )
            shift.settle()
            shift.send_and_read()
            kinds.append(group_type(raw, shift.group))
    assert len(shift.seen) == len(set(shift.seen)), "a clean hand-over repeats nothing"
    return kinds


def test_static_members_change_the_protocol_in_their_places(
    broker: Broker, raw: Raw, wide_topic: str, group: str
) -> None:
    shift = Shift(broker, wide_topic, group)
    shares = []
    for protocol in ("classic", "consumer", "classic"):
        with (
            shift.at_work(protocol, group_instance_id="i"),
            shift.at_work(protocol, group_instance_id="j"),
        ):
            shares.append(shift.settle())
            shift.send_and_read()
            assert group_type(raw, group) == protocol
    assert shares[0] == shares[1] == shares[2]
    assert len(shift.seen) == len(set(shift.seen))


# -- with Kafka's own consumers ------------------------------------------------------------------


def test_java_consumers_of_both_protocols_share_a_group(
    tools: Tools, broker: Broker, raw: Raw, wide_topic: str, group: str
) -> None:
    shift = Shift(broker, wide_topic, group)
    for partition in range(4):
        produce(broker, wide_topic, [b"v"] * 25, partition=partition)
    with shift.at_work("consumer") as worker:
        eventually(lambda: worker.work().owns, lambda seen: len(seen) == 4)
        java = tools.start(
            VERIFIABLE_CONSUMER,
            *("--topic", wide_topic, "--group-id", group, "--group-protocol", "classic"),
            *("--session-timeout", "6000", "--verbose", "--reset-policy", "earliest"),
            *("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
        )
        try:
            shares = eventually(lambda: set(worker.work().owns), lambda seen: len(seen) == 2)
            assert group_type(raw, group) == "consumer"
            for partition in range(4):
                produce(broker, wide_topic, [b"v"] * 25, partition=partition)
            eventually(
                lambda: [offset for p, offset in worker.work().seen if p in shares],
                lambda seen: seen.count(49) == 2,
            )
        finally:
            java.terminate()
            output, _ = java.communicate(timeout=20)
        eventually(lambda: worker.work().owns, lambda seen: len(seen) == 4)
        expected = {(partition, offset) for partition in range(4) for offset in range(50)}
        theirs = [
            (int(event["partition"]), int(event["offset"]))
            for event in Ended(0, output, "").events("record_data")
        ]
        eventually(lambda: {*worker.work().seen, *theirs}, lambda seen: seen == expected)
    assert len(worker.seen) + len(theirs) == 200, "each record once, by one of the two"


# -- with requests of our own --------------------------------------------------------------------


@dataclass
class Members:
    """Members of both protocols, and what they are told."""

    raw: Raw
    group: str
    topic: str

    def metadata(self, owned: tuple[int, ...] = ()) -> bytes:
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        out = struct.pack(">hi", 1, 1) + name + struct.pack(">i", -1)
        if not owned:
            return out + struct.pack(">i", 0)
        return out + struct.pack(">i", 1) + name + struct.pack(f">{len(owned) + 1}i", len(owned), *owned)

    def assignment(self, *partitions: int) -> bytes:
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        listed = struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
        return struct.pack(">hi", 1, 1) + name + listed + struct.pack(">i", -1)

    def join(self, member: str = "", owned: tuple[int, ...] = (), **fields: Any) -> Any:
        settings = {
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": self.metadata(owned)}],
            **fields,
        }
        return self.raw.call("join_group", 9, group_id=self.group, member_id=member, **settings)

    def sync(self, member: str, generation: int, given: bytes = b"", **fields: Any) -> Any:
        settings = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        return self.raw.call(
            "sync_group",
            5,
            group_id=self.group,
            member_id=member,
            generation_id=generation,
            assignments=[{"member_id": member, "assignment": given}] if given else [],
            **settings,
        )

    def partitions(self, member: str, generation: int, **fields: Any) -> list[int]:
        answer = self.sync(member, generation, **fields)
        assert answer.error_code == ErrorCode.none
        for count in range(5):
            for first in range(5):
                if answer.assignment == self.assignment(*range(first, first + count)):
                    return list(range(first, first + count))
        assert answer.assignment[2:6] == b"\0\0\0\0", answer.assignment
        return []

    def classic(self, count: int = 4, **fields: Any) -> Any:
        """Join a new group, and take all of the topic."""
        first = self.join(**fields)
        joined = self.join(first.member_id) if first.error_code == ErrorCode.member_id_required else first
        self.sync(joined.member_id, joined.generation_id, self.assignment(*range(count)), **fields)
        return joined

    def heartbeat(self, member: str, generation: int, **fields: Any) -> ErrorCode:
        answer = self.raw.call(
            "heartbeat", 4, group_id=self.group, member_id=member, generation_id=generation, **fields
        )
        return ErrorCode(answer.error_code)

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            first = {
                "rebalance_timeout": 10_000,
                "subscribed_topic_names": [self.topic],
                "topic_partitions": [],
            }
            fields = {**first, **fields}
        return self.raw.call(
            "consumer_group_heartbeat",
            1,
            group_id=self.group,
            member_id=member,
            member_epoch=epoch,
            **fields,
        )

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        named = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        answer = self.raw.call("leave_group", 5, group_id=self.group, members=named)
        assert answer.error_code == ErrorCode.none
        return [ErrorCode(each.error_code) for each in answer.members]

    def described(self) -> Any:
        [found] = self.raw.call("consumer_group_describe", 1, group_ids=[self.group]).groups
        return found

    def described_as_classic(self) -> Any:
        [found] = self.raw.call("describe_groups", 6, groups=[self.group]).groups
        return found


def told(answer: Any) -> list[int] | None:
    if answer.assignment is None:
        return None
    return sorted(p for topic in answer.assignment.topic_partitions for p in topic.partitions)


@pytest.fixture
def members(raw: Raw, group: str, wide_topic: str) -> Members:
    return Members(raw, group, wide_topic)


def test_what_members_are_told_on_the_way_up_and_down(members: Members) -> None:
    old, new = members.classic(), str(uuid4())
    member = old.member_id
    joined = members.beat(new, 0)
    assert (joined.error_code, told(joined)) == (ErrorCode.none, [])
    group = members.described()
    assert {each.member_id: each.member_type for each in group.members} == {member: 0, new: 1}
    assert members.described_as_classic().error_code == ErrorCode.group_id_not_found
    assert members.heartbeat(member, 1) == ErrorCode.rebalance_in_progress
    assert members.sync(member, 1).error_code == ErrorCode.rebalance_in_progress

    keeps = members.join(member, owned=(0, 1, 2, 3))
    assert (keeps.error_code, keeps.generation_id, keeps.leader, keeps.members) == (ErrorCode.none, 1, "", ())
    kept = members.partitions(member, 1)
    assert len(kept) == 2
    assert told(members.beat(new, joined.member_epoch)) is None, "nothing is free yet"
    assert members.heartbeat(member, 1) == ErrorCode.rebalance_in_progress
    settled = members.join(member, owned=tuple(kept))
    assert settled.generation_id == joined.member_epoch
    assert members.partitions(member, settled.generation_id) == kept
    given = told(members.beat(new, joined.member_epoch))
    assert given is not None
    assert sorted(given + kept) == [0, 1, 2, 3]
    assert members.heartbeat(member, settled.generation_id) == ErrorCode.none
    assert members.described().group_state == "Stable"

    assert members.beat(new, -1).error_code == ErrorCode.none
    assert members.described().error_code == ErrorCode.group_id_not_found
    classic = members.described_as_classic()
    assert (classic.group_state, classic.protocol_type) == ("PreparingRebalance", "consumer")
    assert members.heartbeat(member, settled.generation_id) == ErrorCode.rebalance_in_progress
    alone = members.join(member)
    assert (alone.generation_id, alone.leader) == (settled.generation_id + 1, member)
    missing = members.beat(new, joined.member_epoch)
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.group_id_not_found,
        f"Group {members.group} is not a consumer group.",
    )


def test_requests_out_of_turn_in_the_mix(members: Members) -> None:
    new = str(uuid4())
    epoch = members.beat(new, 0).member_epoch
    first = members.join()
    assert first.error_code == ErrorCode.member_id_required
    old = members.join(first.member_id)
    member, generation = old.member_id, old.generation_id
    assert members.sync(member, 99).error_code == ErrorCode.illegal_generation
    assert members.sync(member, generation, protocol_type="connect").error_code == (
        ErrorCode.inconsistent_group_protocol
    )
    assert members.sync(member, generation, protocol_name="other").error_code == (
        ErrorCode.inconsistent_group_protocol
    )
    assert members.sync(new, epoch).error_code == ErrorCode.unknown_member_id
    assert members.heartbeat(member, 99) == ErrorCode.illegal_generation
    assert members.heartbeat(new, epoch) == ErrorCode.unknown_member_id
    assert members.heartbeat(member, generation, group_instance_id="i") == ErrorCode.unknown_member_id
    assert members.join(protocol_type="connect").error_code == ErrorCode.inconsistent_group_protocol
    other = [{"name": "other", "metadata": members.metadata()}]
    assert members.join(protocols=other).error_code == ErrorCode.inconsistent_group_protocol
    assert members.join("x", group_instance_id="i").error_code == ErrorCode.unknown_member_id
    static = members.join(group_instance_id="i")
    assert static.error_code == ErrorCode.none
    assert members.join("x", group_instance_id="i").error_code == ErrorCode.fenced_instance_id
    assert members.leave(("", "i"), ("nobody", None)) == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert members.leave((new, None)) == [ErrorCode.none], "whatever its protocol"
    assert members.described_as_classic().group_state == "PreparingRebalance"


def test_offsets_of_both_protocols_in_the_mix(members: Members) -> None:
    def commit(member: str, generation: int, version: int = 9) -> ErrorCode:
        parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        answer = members.raw.call(
            "offset_commit",
            version,
            group_id=members.group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=[{"name": members.topic, "partitions": parts}],
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    old, new = members.classic(), str(uuid4())
    epoch = members.beat(new, 0).member_epoch
    assert commit(old.member_id, 1) == ErrorCode.none
    assert commit(old.member_id, 1, version=8) == ErrorCode.none
    assert commit(old.member_id, 7) == ErrorCode.illegal_generation
    assert commit(new, epoch) == ErrorCode.none
    assert commit(new, epoch, version=8) == ErrorCode.unsupported_version
    assert commit(new, epoch + 7) == ErrorCode.stale_member_epoch


def test_static_members_are_replaced_across_protocols(members: Members) -> None:
    old, new = members.classic(group_instance_id="i"), str(uuid4())
    taken = members.beat(new, 0, instance_id="i")
    assert (taken.error_code, told(taken)) == (ErrorCode.none, [0, 1, 2, 3])
    assert members.heartbeat(old.member_id, 1, group_instance_id="i") == ErrorCode.fenced_instance_id
    assert members.heartbeat(old.member_id, 1) == ErrorCode.unknown_member_id
    assert members.beat(str(uuid4()), 0, instance_id="i").error_code == ErrorCode.unreleased_instance_id
    back = members.join(group_instance_id="i")
    assert (back.error_code, back.generation_id) == (ErrorCode.none, taken.member_epoch)
    assert members.partitions(back.member_id, back.generation_id, group_instance_id="i") == [0, 1, 2, 3]
    assert members.heartbeat(back.member_id, back.generation_id, group_instance_id="i") == ErrorCode.none
    assert members.described_as_classic().group_state == "Stable"


def test_groups_that_cannot_be_upgraded(members: Members) -> None:
    members.join(
        group_instance_id="x", protocol_type="connect", protocols=[{"name": "default", "metadata": b"z"}]
    )
    refused = members.beat(str(uuid4()), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {members.group} to consumer group because the group does not use "
        "the consumer embedded protocol.",
    )
    own = Members(members.raw, f"{members.group}-own", members.topic)
    joined = own.join(group_instance_id="x", protocols=[{"name": "mine", "metadata": own.metadata()}])
    given = own.assignment(0, 1)[:-4] + b"\0\0\0\1x"
    own.sync(joined.member_id, joined.generation_id, given, group_instance_id="x", protocol_name="mine")
    refused = own.beat(str(uuid4()), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {own.group} to consumer group because an unsupported custom assignor is in "
        "use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.",
    )
    odd = Members(members.raw, f"{members.group}-odd", members.topic)
    joined = odd.join(group_instance_id="x")
    odd.sync(joined.member_id, joined.generation_id, b"zz", group_instance_id="x")
    refused = odd.beat(str(uuid4()), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {odd.group} to consumer group because the embedded consumer protocol is "
        "malformed.",
    )


# -- with a broker of its own --------------------------------------------------------------------

Start = Callable[[str], BrokerProcess | RealKafka]


@pytest.fixture(params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """A broker on the test's own directory, with a policy, not started."""

    def make(policy: str) -> BrokerProcess | RealKafka:
        settings = SETTINGS | {"group.consumer.migration.policy": policy}
        if request.param == "headwater":
            return BrokerProcess(tmp_path / "data", settings=settings)
        request.getfixturevalue("java")
        # Its controller waits this long before it believes that the broker which was killed is gone.
        return RealKafka(tmp_path / "data", properties=settings | {"broker.session.timeout.ms": "3000"})

    return make


def test_a_mix_survives_a_crash_and_a_policy_that_ends_it(start: Start) -> None:
    first = start("bidirectional")
    new = str(uuid4())
    with first:
        broker = Broker("crashing", first.host, first.port)
        create(broker, "kept")
        with Raw(broker) as raw:
            _await_coordinator(raw)
            members = Members(raw, "mixed", "kept")
            old = members.classic(count=2)
            joined = members.beat(new, 0)
            assert joined.error_code == ErrorCode.none
            epoch = joined.member_epoch
            assert members.heartbeat(old.member_id, 1) == ErrorCode.rebalance_in_progress
            members.join(old.member_id)
            Members(raw, "old", "kept").classic(count=2)
        first.kill()

    with start("disabled") as second, Raw(Broker("again", second.host, second.port)) as raw:
        _await_coordinator(raw)
        assert topic_id(raw, "kept")
        members = Members(raw, "mixed", "kept")
        eventually(lambda: members.described().error_code, lambda seen: bool(seen == ErrorCode.none))
        assert {each.member_type for each in members.described().members} == {0, 1}
        kept = members.partitions(old.member_id, epoch)
        given = told(members.beat(new, epoch))
        assert given is not None
        assert sorted(kept + given) == [0, 1]
        assert members.heartbeat(old.member_id, epoch) == ErrorCode.none
        members.beat(new, -1)
        assert members.described().error_code == ErrorCode.none, (
            "its last member is still not a classic group's"
        )
        alone = members.join(old.member_id)
        assert members.partitions(old.member_id, alone.generation_id) == [0, 1]

        classic = Members(raw, "old", "kept")
        refused = classic.beat(new, 0)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.group_id_not_found,
            "Cannot upgrade classic group old to consumer group because online upgrade is disabled.",
        )


def _await_coordinator(raw: Raw) -> None:
    raw.call("find_coordinator", 2, key="any", key_type=0)
    eventually(
        lambda: raw.call("heartbeat", 4, group_id="any", generation_id=1, member_id="any").error_code,
        lambda seen: bool(seen == ErrorCode.unknown_member_id),
        seconds=30,
    )
