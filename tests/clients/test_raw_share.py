"""Requests of share groups, in turn and out of turn."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .brokers import Broker, eventually, unique
from .raw import SET, Raw, alter_group, batch, produce, topic_id
from .share import ACCEPT, GAP, REJECT, RELEASE, RENEW, Ack, Member, begin_at

pytestmark = pytest.mark.real

NOTHING = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
"""What a member asks for that renews its locks."""


@pytest.fixture
def member(broker: Broker, raw: Raw, group: str, topic: str) -> Iterator[Member]:
    """The only member of a group that reads a topic from its beginning."""
    begin_at(raw, group, topic)
    with Member(broker, group, topic) as made:
        yield made.join()


def codes(response: Any) -> list[ErrorCode]:
    return [p.error_code for topic in response for p in topic.partitions]


def test_share_groups_are_advertised(raw: Raw) -> None:
    answer = raw.call("api_versions", 4, client_software_name="raw", client_software_version="1")
    apis = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    expected = {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2), 90: (0, 1), 91: (0, 0), 92: (0, 0)}
    assert {key: apis[key] for key in expected} == expected
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert (supported["share.version"], finalized["share.version"]) == ((0, 1), 1)


@pytest.mark.parametrize(
    ("epoch", "changes", "code"),
    [
        (0, {"subscribed_topic_names": None}, ErrorCode.invalid_request),
        (0, {"subscribed_topic_names": []}, ErrorCode.invalid_request),
        (0, {"member_id": ""}, ErrorCode.invalid_request),
        (0, {"member_id": "x" * 37}, ErrorCode.invalid_request),
        (0, {"group_id": ""}, ErrorCode.invalid_request),
        (0, {"rack_id": ""}, ErrorCode.invalid_request),
        (-2, {}, ErrorCode.invalid_request),
        (1, {"group_id": "nobody's"}, ErrorCode.group_id_not_found),
        (-1, {"group_id": "nobody's"}, ErrorCode.group_id_not_found),
        (1, {"member_id": "nobody"}, ErrorCode.unknown_member_id),
        (-1, {"member_id": "nobody"}, ErrorCode.unknown_member_id),
        (1000, {}, ErrorCode.fenced_member_epoch),
    ],
)
def test_heartbeats_out_of_turn_are_refused(
    member: Member, epoch: int, changes: dict[str, Any], code: ErrorCode
) -> None:
    answer = member.beat(epoch, **changes)
    assert answer.error_code == code
    assert answer.error_message or "member_id" in changes


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("epoch", [-1, 0, 1])
@pytest.mark.parametrize("named", [(None, "m"), ("g", None), ("g", ""), ("g", "x" * 37)])
def test_a_session_has_a_group_and_a_member(
    raw: Raw, version: int, epoch: int, named: tuple[str | None, str | None]
) -> None:
    who: dict[str, Any] = {"group_id": named[0], "member_id": named[1], "share_session_epoch": epoch}
    limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1, "max_records": 1, "batch_size": 1}
    assert raw.call("share_fetch", version, **who, **limits).error_code == ErrorCode.invalid_request
    assert raw.call("share_acknowledge", version, **who).error_code == ErrorCode.invalid_request


def test_an_assignment_is_told_once_and_again_to_who_asks(member: Member) -> None:
    assert member.beat().assignment is None
    assert member.beat(subscribed_topic_names=[member.topic]).assignment is not None
    assert member.beat(0).assignment is not None
    left = member.beat(-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
    assert member.beat(1).error_code == ErrorCode.unknown_member_id


def test_sessions_go_by_their_epochs(broker: Broker, member: Member) -> None:
    missing, wrong = ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch
    one: Ack = (0, 0, [ACCEPT])
    assert member.fetch(session=1).error == missing
    assert member.fetch(session=-1, topics=[]).error == missing
    assert member.fetch(one, session=0).error == ErrorCode.invalid_request
    assert member.acknowledge(one, session=0) == (wrong, None)
    assert member.acknowledge(one, session=1) == (missing, None)
    assert member.acknowledge(one, session=-1) == (missing, None)
    eventually(lambda: member.fetch(session=0).error, lambda seen: bool(seen == ErrorCode.none))
    member.session = 1
    assert member.fetch(session=2).error == wrong
    assert member.acknowledge(one, session=2) == (wrong, None)
    assert member.fetch().error == ErrorCode.none
    assert member.fetch(session=-1, topics=[]).error == ErrorCode.none
    assert member.fetch().error == missing


def test_words_about_records_are_checked(broker: Broker, raw: Raw, member: Member) -> None:
    nothing, request, state = ErrorCode.none, ErrorCode.invalid_request, ErrorCode.invalid_record_state
    produce(raw, member.topic, batch(10))
    produce(raw, member.topic, batch(5))
    assert member.take() == [(0, 14, 1)]

    def said(*acks: Ack, **changes: Any) -> ErrorCode | None:
        code, of_partition = member.acknowledge(*acks, **changes)
        assert code == nothing
        return of_partition

    assert said((15, 15, [ACCEPT])) == request
    assert said((14, 16, [ACCEPT])) == request
    assert said((5, 4, [ACCEPT])) == request
    assert said((0, 4, [ACCEPT, ACCEPT])) == request
    assert said((0, 4, [])) == request
    assert said((0, 4, [9])) == request
    assert said((0, 4, [-1])) == request
    assert said((0, 4, [RENEW])) == request  # not announced
    assert said((0, 4, [ACCEPT]), (3, 5, [ACCEPT])) == request
    assert said((0, 4, [ACCEPT]), (4, 5, [ACCEPT])) == state
    assert said((5, 6, [ACCEPT]), (0, 1, [ACCEPT])) == request
    assert said() is None
    assert said((0, 4, [RENEW]), is_renew_ack=True) == nothing
    assert said((0, 4, [ACCEPT])) == nothing
    assert said((0, 4, [ACCEPT])) == nothing  # done with already
    assert said((3, 6, [ACCEPT])) == nothing
    assert said((7, 7, [RELEASE]), (8, 8, [REJECT]), (9, 9, [GAP])) == nothing
    assert said((7, 7, [ACCEPT])) == state
    with Member(broker, member.group, member.topic) as other:
        other.join()
        other.fetch()
        assert other.acknowledge((10, 14, [ACCEPT])) == (nothing, state)
    word = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [ACCEPT]}
    part: dict[str, Any] = {"partition_index": 0, "acknowledgement_batches": [word]}
    strange: list[dict[str, Any]] = [{"topic_id": uuid.uuid4(), "partitions": [part]}]
    assert said(topics=strange) == ErrorCode.unknown_topic_id
    strange[0]["topic_id"], part["partition_index"] = member.topic_id, 7
    assert said(topics=strange) == ErrorCode.unknown_topic_or_partition


def test_records_go_to_one_member_and_come_back(broker: Broker, raw: Raw, member: Member) -> None:
    with Member(broker, member.group, member.topic) as other:
        other.join()
        produce(raw, member.topic, batch(6))
        assert member.take() == [(0, 5, 1)]
        assert other.fetch().acquired == []
        assert member.fetch((0, 5, [ACCEPT, RELEASE, ACCEPT, RELEASE, REJECT, ACCEPT])).acquired == [
            (1, 1, 2),
            (3, 3, 2),
        ]
        assert member.acknowledge((1, 1, [ACCEPT])) == (ErrorCode.none, ErrorCode.none)
        assert member.fetch((3, 3, [RELEASE]), session=-1).acknowledged == ErrorCode.none
        assert other.take() == [(3, 3, 3)]
        other.raw.close()
        member.session = 0
        assert member.take() == [(3, 3, 4)]
    produce(raw, member.topic, batch(3))
    assert member.take((3, 3, [ACCEPT])) == [(6, 8, 1)]


def test_a_fetch_that_waits_gets_what_is_produced_and_what_is_released(
    broker: Broker, raw: Raw, member: Member
) -> None:
    with Member(broker, member.group, member.topic) as other:
        other.join()
        eventually(other.fetch, lambda seen: seen.error == ErrorCode.none)
        fields = {"group_id": member.group, "member_id": other.id, "max_wait": 1500, "min_bytes": 1}
        fields |= {"max_bytes": 1_000_000, "max_records": 500, "batch_size": 500}

        def wait_for(action: Any) -> list[tuple[int, int, int]]:
            other.raw.start("share_fetch", 2, share_session_epoch=other.session, **fields)
            other.session += 1
            time.sleep(0.2)
            action()
            began = time.monotonic()
            answer = other.raw.finish("share_fetch", 2)
            # Kafka looks for what was released when the time of the fetch is up.
            assert time.monotonic() - began < 1 or broker.name == "kafka"
            [part] = [part for topic in answer.responses for part in topic.partitions]
            return [
                (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
            ]

        assert wait_for(lambda: produce(raw, member.topic, batch(2))) == [(0, 1, 1)]
        other.acknowledge((0, 1, [ACCEPT]))
        produce(raw, member.topic, batch(2))
        assert member.take() == [(2, 3, 1)]
        assert wait_for(lambda: member.acknowledge((2, 3, [RELEASE]))) == [(2, 3, 2)]


def test_limits_are_kept_to_the_batch_or_to_the_record(raw: Raw, member: Member) -> None:
    produce(raw, member.topic, batch(10))
    for _ in range(4):
        produce(raw, member.topic, batch(3))
    assert member.take(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert member.take(max_records=4, share_acquire_mode=1) == [(3, 6, 1)]
    assert member.take(max_records=3) == [(7, 9, 1)]
    assert member.fetch(max_records=0).acquired == []
    assert member.take(max_records=4) == [(10, 15, 1)]
    assert member.take(max_records=1) == [(16, 18, 1)]


def test_time_is_up_renewed_or_the_last_delivery(raw: Raw, member: Member) -> None:
    produce(raw, member.topic, batch(2))
    assert member.take() == [(0, 1, 1)]
    time.sleep(0.5)  # so that one lock ends well before the other
    assert member.fetch((1, 1, [RENEW]), is_renew_ack=True).error == ErrorCode.invalid_request
    assert member.fetch((1, 1, [RENEW]), is_renew_ack=True, **NOTHING).acknowledged == ErrorCode.none
    assert member.take() == [(0, 0, 2)]
    assert member.take() == [(1, 1, 2)]
    assert member.acknowledge((0, 1, [RELEASE, ACCEPT])) == (ErrorCode.none, ErrorCode.none)
    for deliveries in (3, 4, 5):
        assert member.take() == [(0, 0, deliveries)]
        assert member.acknowledge((0, 0, [RELEASE])) == (ErrorCode.none, ErrorCode.none)
    produce(raw, member.topic, batch(1))
    assert member.take() == [(2, 2, 1)]


def test_records_that_are_deleted_are_done_with(raw: Raw, member: Member) -> None:
    for _ in range(3):
        produce(raw, member.topic, batch(4))
    assert member.take(max_records=4) == [(0, 3, 1)]
    partitions = [{"partition_index": 0, "offset": 8}]
    raw.call("delete_records", 2, timeout=10_000, topics=[{"name": member.topic, "partitions": partitions}])
    assert member.take() == [(8, 11, 1)]
    assert member.acknowledge((0, 3, [ACCEPT])) == (ErrorCode.none, ErrorCode.none)
    assert member.acknowledge((8, 11, [ACCEPT])) == (ErrorCode.none, ErrorCode.none)


def test_a_topic_that_is_deleted_ends_for_the_group(raw: Raw, member: Member) -> None:
    produce(raw, member.topic, batch(4))
    assert member.take() == [(0, 3, 1)]
    raw.call("delete_topics", 6, topics=[{"name": member.topic, "topic_id": None}], timeout=10_000)
    gone = eventually(
        lambda: member.acknowledge((0, 3, [ACCEPT]))[1], lambda seen: seen not in (None, ErrorCode.none)
    )
    assert gone == ErrorCode.unknown_topic_id
    answer = eventually(
        member.beat, lambda seen: seen.assignment is not None and not seen.assignment.topic_partitions
    )
    assert answer.error_code == ErrorCode.none


def test_offsets_are_described_set_and_deleted(broker: Broker, raw: Raw, member: Member) -> None:
    group, topic = member.group, member.topic

    def described(**asked: Any) -> tuple[int, int]:
        answer = raw.call("describe_share_group_offsets", 1, groups=[{"group_id": group, **asked}])
        [found] = answer.groups
        assert found.error_code == ErrorCode.none
        if not found.topics:
            return -1, -1
        [[part]] = [each.partitions for each in found.topics]
        assert part.error_code == ErrorCode.none
        return part.start_offset, part.lag

    def altered(offset: int, name: str = topic, partition: int = 0) -> list[ErrorCode]:
        parts = [{"partition_index": partition, "start_offset": offset}]
        topics = [{"topic_name": name, "partitions": parts}]
        answer = raw.call("alter_share_group_offsets", 0, group_id=group, topics=topics)
        return codes(answer.responses) or [answer.error_code]

    def deleted(*names: str, who: str = group) -> list[ErrorCode]:
        topics = [{"topic_name": each} for each in names]
        answer = raw.call("delete_share_group_offsets", 0, group_id=who, topics=topics)
        return [each.error_code for each in answer.responses] or [answer.error_code]

    produce(raw, topic, batch(10))
    assert member.take() == [(0, 9, 1)]
    member.acknowledge((0, 3, [ACCEPT]), (6, 7, [REJECT]))
    start, lag = described(topics=None)
    assert lag == 4
    assert start == 4 or broker.name == "kafka"  # which tells it with the next acknowledgement
    assert altered(0) == deleted(topic) == [ErrorCode.non_empty_group]
    [refused] = raw.call("delete_groups", 2, groups_names=[group]).results
    assert refused.error_code == ErrorCode.non_empty_group
    member.acknowledge(session=-1)
    member.beat(-1)
    assert altered(2) == [ErrorCode.none]
    assert described(topics=[{"topic_name": topic, "partitions": [0]}]) == (2, 8)
    assert altered(2, partition=5) == altered(2, "nowhere") == [ErrorCode.unknown_topic_or_partition]
    with Member(broker, group, topic) as other:
        # Kafka goes on with what it remembers, until an acknowledgement finds that the offset was set.
        assert other.join().take() == [(2, 9, 1)] or broker.name == "kafka"
        other.acknowledge(session=-1)
        other.beat(-1)
    assert deleted(topic, "nowhere") == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert deleted(topic) == [ErrorCode.unknown_topic_or_partition]
    assert deleted(topic, who="") == [ErrorCode.invalid_group_id]
    assert deleted(topic, who="nobody's") == [ErrorCode.group_id_not_found]
    assert described(topics=None) == (-1, -1)


def test_groups_are_described_listed_and_deleted(raw: Raw, member: Member) -> None:
    group = member.group

    def describe(name: str) -> Any:
        [found] = raw.call("share_group_describe", 1, group_ids=[name]).groups
        return found

    found = describe(group)
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    [told] = found.members
    assert (told.member_id, told.member_epoch, told.client_id) == (member.id, member.epoch, "raw")
    assert told.subscribed_topic_names == (member.topic,)
    [assigned] = told.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == (member.topic, (0,))
    listed = raw.call("list_groups", 5, states_filter=[], types_filter=["share"]).groups
    [mine] = [each for each in listed if each.group_id == group]
    assert (mine.protocol_type, mine.group_state, mine.group_type) == ("share", "Stable", "share")
    assert describe("").error_code == ErrorCode.invalid_group_id
    assert describe("nobody's").error_code == ErrorCode.group_id_not_found
    member.beat(-1)
    assert describe(group).group_state == "Empty"
    [gone] = raw.call("delete_groups", 2, groups_names=[group]).results
    assert gone.error_code == ErrorCode.none
    assert describe(group).error_code == ErrorCode.group_id_not_found


def test_share_groups_and_the_others_are_kept_apart(broker: Broker, raw: Raw, member: Member) -> None:
    group, topic = member.group, member.topic
    joining: dict[str, Any] = {"session_timeout": 10_000, "rebalance_timeout": 10_000}
    joining |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    assert (
        raw.call("join_group", 9, group_id=group, member_id="", **joining).error_code
        == ErrorCode.inconsistent_group_protocol
    )
    missing = ErrorCode.group_id_not_found
    beat = raw.call(
        "consumer_group_heartbeat", 1, group_id=group, member_id="m", member_epoch=0,
        rebalance_timeout=1000, subscribed_topic_names=[topic], topic_partitions=[],
    )  # fmt: skip
    assert beat.error_code == missing
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    commit = raw.call(
        "offset_commit", 9, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": topic, "partitions": parts}],
    )  # fmt: skip
    assert codes(commit.topics) == [missing]
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    assert raw.call("offset_delete", 0, group_id=group, topics=topics).error_code == missing
    other = unique("classic")
    raw.call("join_group", 9, group_id=other, member_id="", **joining)
    assert member.beat(0, group_id=other).error_code == missing
    assert topic_id(raw, topic) == member.topic_id


def test_a_group_has_settings_of_its_own(broker: Broker, raw: Raw, group: str, topic: str) -> None:
    own = {
        "share.auto.offset.reset": "earliest",
        "share.heartbeat.interval.ms": "600",
        "share.record.lock.duration.ms": "1500",
        "share.delivery.count.limit": "2",
        "share.renew.acknowledge.enable": "false",
    }
    assert alter_group(raw, group, *((name, SET, value) for name, value in own.items())) == (
        ErrorCode.none,
        "",
    )
    produce(raw, topic, batch(3))
    with Member(broker, group, topic) as member:
        assert member.join().beat().heartbeat_interval == timedelta(milliseconds=600)
        assert member.take() == [(0, 2, 1)]
        assert member.acknowledge((0, 2, [RELEASE])) == (ErrorCode.none, ErrorCode.none)
        assert member.take() == [(0, 2, 2)]
        refused = ErrorCode.invalid_record_state
        assert member.acknowledge((0, 2, [RENEW]), is_renew_ack=True) == (ErrorCode.none, refused)
        assert member.fetch((0, 2, [RENEW]), is_renew_ack=True, **NOTHING).acknowledged == refused
        # That was the last delivery.
        assert member.acknowledge((0, 2, [RELEASE])) == (ErrorCode.none, ErrorCode.none)
        produce(raw, topic, batch(1))
        assert member.take() == [(3, 3, 1)]
