"""Group requests out of turn: stale generations, unknown members, fenced instances."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .brokers import Broker, unique
from .raw import Raw, topic_id

pytestmark = pytest.mark.real


# What a consumer tells the leader of its group: version 0, one topic named "t", no data of its own.
SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


def join(raw: Raw, group: str, member: str = "", **fields: Any) -> Any:
    settings = {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        **fields,
    }
    return raw.call("join_group", 9, group_id=group, member_id=member, **settings)


def sync(raw: Raw, group: str, member: str, generation: int, assignment: bytes = b"", **fields: Any) -> Any:
    given = [{"member_id": member, "assignment": assignment}] if assignment else []
    return raw.call(
        "sync_group",
        5,
        group_id=group,
        member_id=member,
        generation_id=generation,
        assignments=given,
        **{"protocol_type": "consumer", "protocol_name": "range", **fields},
    )


def heartbeat(raw: Raw, group: str, member: str, generation: int, **fields: Any) -> ErrorCode:
    answer = raw.call("heartbeat", 4, group_id=group, member_id=member, generation_id=generation, **fields)
    return ErrorCode(answer.error_code)


def commit(
    raw: Raw,
    group: str,
    topic: str,
    *,
    member: str = "",
    generation: int = -1,
    offset: int = 1,
    partition: int = 0,
    metadata: str = "",
    **fields: Any,
) -> ErrorCode:
    parts = [{"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}]
    answer = raw.call(
        "offset_commit",
        9,
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[{"name": topic, "partitions": parts}],
        **fields,
    )
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetched(raw: Raw, group: str, topics: list[dict[str, Any]] | None, **fields: Any) -> Any:
    """Fetch a group's offsets; null topics mean all."""
    answer = raw.call("offset_fetch", 9, groups=[{"group_id": group, "topics": topics, **fields}])
    [found] = answer.groups
    return found


@dataclass(frozen=True)
class Member:
    """A member of a stable group of one."""

    group: str
    id: str
    generation: int


@pytest.fixture
def member(raw: Raw, group: str) -> Member:
    wanted = join(raw, group)
    assert wanted.error_code == ErrorCode.member_id_required
    joined = join(raw, group, wanted.member_id)
    assert joined.error_code == ErrorCode.none
    synced = sync(raw, group, joined.member_id, joined.generation_id, b"assignment")
    assert synced.error_code == ErrorCode.none
    return Member(group, joined.member_id, joined.generation_id)


class TestClassic:
    def test_joining_takes_two_steps_and_syncing_hands_out_the_leaders_plan(
        self, raw: Raw, group: str
    ) -> None:
        wanted = join(raw, group)
        assert (wanted.error_code, wanted.generation_id) == (ErrorCode.member_id_required, -1)
        assert wanted.member_id.startswith("raw-")
        joined = join(raw, group, wanted.member_id)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
        assert (joined.leader, joined.protocol_name) == (wanted.member_id, "range")
        [only] = joined.members
        assert (only.member_id, only.metadata) == (wanted.member_id, SUBSCRIPTION)
        synced = sync(raw, group, wanted.member_id, 1, b"assignment")
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"assignment")
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
        assert heartbeat(raw, group, wanted.member_id, 1) == ErrorCode.none

    def test_a_group_that_nobody_knows(self, raw: Raw, group: str) -> None:
        assert heartbeat(raw, group, "me", 1) == ErrorCode.unknown_member_id
        assert sync(raw, group, "me", 1).error_code == ErrorCode.unknown_member_id
        assert join(raw, group, "me").error_code == ErrorCode.unknown_member_id
        left = raw.call("leave_group", 5, group_id=group, members=[{"member_id": "me"}])
        assert (left.error_code, left.members[0].error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)

    def test_a_member_that_the_group_does_not_know(self, raw: Raw, topic: str, member: Member) -> None:
        group, generation = member.group, member.generation
        assert heartbeat(raw, group, "stranger", generation) == ErrorCode.unknown_member_id
        assert sync(raw, group, "stranger", generation).error_code == ErrorCode.unknown_member_id
        refused = commit(raw, group, topic, member="stranger", generation=generation)
        assert refused == ErrorCode.unknown_member_id
        left = raw.call("leave_group", 5, group_id=group, members=[{"member_id": "stranger"}])
        assert left.members[0].error_code == ErrorCode.unknown_member_id

    @pytest.mark.parametrize("shift", [-1, 1])
    def test_a_generation_that_is_not_the_groups(
        self, raw: Raw, topic: str, member: Member, shift: int
    ) -> None:
        group, wrong = member.group, member.generation + shift
        assert heartbeat(raw, group, member.id, wrong) == ErrorCode.illegal_generation
        assert sync(raw, group, member.id, wrong).error_code == ErrorCode.illegal_generation
        refused = commit(raw, group, topic, member=member.id, generation=wrong)
        assert refused == ErrorCode.illegal_generation
        assert heartbeat(raw, group, member.id, member.generation) == ErrorCode.none

    def test_only_members_commit_while_there_are_members(self, raw: Raw, topic: str, member: Member) -> None:
        assert commit(raw, member.group, topic) == ErrorCode.unknown_member_id
        generation = member.generation
        accepted = commit(raw, member.group, topic, member=member.id, generation=generation, offset=5)
        assert accepted == ErrorCode.none
        [found] = fetched(raw, member.group, None).topics
        assert [(each.partition_index, each.committed_offset) for each in found.partitions] == [(0, 5)]

    def test_syncing_with_another_protocol(self, raw: Raw, member: Member) -> None:
        wrong: list[dict[str, Any]] = [{"protocol_name": "sticky"}, {"protocol_type": "connect"}]
        for fields in wrong:
            answer = sync(raw, member.group, member.id, member.generation, **fields)
            assert answer.error_code == ErrorCode.inconsistent_group_protocol

    @pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
    def test_syncing_without_saying_the_protocol(self, raw: Raw, member: Member, missing: str) -> None:
        fields: dict[str, Any] = {missing: None}
        answer = sync(raw, member.group, member.id, member.generation, b"a", **fields)
        assert answer.error_code == ErrorCode.inconsistent_group_protocol
        answer = sync(raw, "nobody's", "nobody", 1, **fields)
        assert answer.error_code == ErrorCode.inconsistent_group_protocol
        assert sync(raw, member.group, member.id, member.generation, b"b").error_code == ErrorCode.none

    def test_joining_with_nothing_in_common(self, raw: Raw, broker: Broker, member: Member) -> None:
        other = [{"name": "other", "metadata": SUBSCRIPTION}]
        wrong: list[dict[str, Any]] = [{"protocols": other}, {"protocol_type": "connect"}, {"protocols": []}]
        with Raw(broker) as second:
            for fields in wrong:
                refused = join(second, member.group, **fields)
                assert refused.error_code == ErrorCode.inconsistent_group_protocol

    @pytest.mark.parametrize("timeout", [0, 5_999, 1_800_001])
    def test_a_session_time_out_out_of_bounds(self, raw: Raw, group: str, timeout: int) -> None:
        refused = join(raw, group, session_timeout=timeout)
        assert refused.error_code == ErrorCode.invalid_session_timeout

    def test_a_group_must_have_a_name(self, raw: Raw, topic: str) -> None:
        assert join(raw, "").error_code == ErrorCode.invalid_group_id
        assert heartbeat(raw, "", "me", 1) == ErrorCode.invalid_group_id
        assert sync(raw, "", "me", 1).error_code == ErrorCode.invalid_group_id

    def test_a_member_that_left_is_unknown(self, raw: Raw, member: Member) -> None:
        left = raw.call("leave_group", 5, group_id=member.group, members=[{"member_id": member.id}])
        assert (left.error_code, left.members[0].error_code) == (ErrorCode.none, ErrorCode.none)
        gone = heartbeat(raw, member.group, member.id, member.generation)
        assert gone == ErrorCode.unknown_member_id

    def test_a_second_member_makes_the_first_one_join_again(
        self, raw: Raw, broker: Broker, member: Member
    ) -> None:
        with Raw(broker) as second:
            wanted = join(second, member.group)
            fields = {
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            }
            second.start("join_group", 9, group_id=member.group, member_id=wanted.member_id, **fields)
            beats = {heartbeat(raw, member.group, member.id, member.generation) for _each in range(20)}
            assert ErrorCode.rebalance_in_progress in beats
            [described] = raw.call("describe_groups", 6, groups=[member.group]).groups
            assert described.group_state == "PreparingRebalance"
            held = {each.member_id: each.member_assignment for each in described.members}
            assert held == {member.id: b"assignment", wanted.member_id: b""}, "until it gives it up"
            first = join(raw, member.group, member.id)
            other = second.finish("join_group", 9)
            assert first.generation_id == other.generation_id == member.generation + 1
            assert first.leader == other.leader == member.id
            assert {each.member_id for each in first.members} == {member.id, wanted.member_id}
            assert other.members == ()

    def test_an_instance_that_comes_back_fences_its_former_self(self, raw: Raw, group: str) -> None:
        instance: dict[str, Any] = {"group_instance_id": "one"}
        first = join(raw, group, **instance)
        assert first.error_code == ErrorCode.none
        assert first.member_id.startswith("one-")
        sync(raw, group, first.member_id, first.generation_id, b"assignment", **instance)
        second = join(raw, group, **instance)
        assert second.error_code == ErrorCode.none
        assert second.generation_id == first.generation_id
        assert second.member_id != first.member_id
        fenced = heartbeat(raw, group, first.member_id, first.generation_id, **instance)
        assert fenced == ErrorCode.fenced_instance_id
        synced = sync(raw, group, second.member_id, second.generation_id, **instance)
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"assignment")


class TestOffsets:
    def test_anyone_commits_to_a_group_without_members(self, raw: Raw, topic: str, group: str) -> None:
        assert commit(raw, group, topic, offset=3, metadata="note") == ErrorCode.none
        [found] = fetched(raw, group, [{"name": topic, "partition_indexes": [0, 1]}]).topics
        assert [
            (each.partition_index, each.committed_offset, each.metadata, each.error_code)
            for each in found.partitions
        ] == [(0, 3, "note", ErrorCode.none), (1, -1, "", ErrorCode.none)]

    def test_a_group_without_members_has_no_generations(self, raw: Raw, topic: str, group: str) -> None:
        assert commit(raw, group, topic, generation=3) == ErrorCode.group_id_not_found
        assert commit(raw, group, topic, member="me", generation=3) == ErrorCode.group_id_not_found
        assert commit(raw, group, topic) == ErrorCode.none
        assert commit(raw, group, topic, member="me", generation=3) == ErrorCode.unknown_member_id

    def test_what_cannot_be_committed(self, raw: Raw, topic: str, group: str) -> None:
        assert commit(raw, group, unique("absent")) == ErrorCode.unknown_topic_or_partition
        assert commit(raw, group, topic, partition=9) == ErrorCode.unknown_topic_or_partition
        assert commit(raw, group, topic, metadata="x" * 4_097) == ErrorCode.offset_metadata_too_large
        assert commit(raw, group, topic, metadata="x" * 4_096) == ErrorCode.none

    def test_a_group_that_nobody_knows_has_no_offsets(self, raw: Raw, topic: str, group: str) -> None:
        every = fetched(raw, group, None)
        assert (every.error_code, every.topics) == (ErrorCode.none, ())
        [found] = fetched(raw, group, [{"name": topic, "partition_indexes": [0]}]).topics
        assert [(each.committed_offset, each.error_code) for each in found.partitions] == [
            (-1, ErrorCode.none)
        ]

    @pytest.mark.parametrize("version", range(2, 11))
    def test_every_version_commits(self, raw: Raw, topic: str, group: str, version: int) -> None:
        parts = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}]
        named: dict[str, Any] = {"topic_id": topic_id(raw, topic)} if version >= 10 else {"name": topic}
        generation = "generation_id_or_member_epoch"
        answer = raw.call(
            "offset_commit",
            version,
            group_id=group,
            member_id="",
            topics=[{**named, "partitions": parts}],
            **{generation: -1},
        )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.none
        [found] = fetched(raw, group, None).topics
        assert [(each.committed_offset, each.metadata) for each in found.partitions] == [(7, "m")]

    def test_only_offsets_of_partitions_that_exist_are_deleted(
        self, raw: Raw, topic: str, group: str
    ) -> None:
        assert commit(raw, group, topic) == ErrorCode.none
        asked = [{"name": topic, "partitions": [{"partition_index": each} for each in (0, 9)]}]
        [answered] = raw.call("offset_delete", 0, group_id=group, topics=asked).topics
        codes = {each.partition_index: each.error_code for each in answered.partitions}
        assert codes == {0: ErrorCode.none, 9: ErrorCode.unknown_topic_or_partition}

    def test_groups_that_are_not_there_cannot_be_deleted_or_described(self, raw: Raw, group: str) -> None:
        [deleted] = raw.call("delete_groups", 2, groups_names=[group]).results
        assert deleted.error_code == ErrorCode.group_id_not_found
        [described] = raw.call("describe_groups", 6, groups=[group]).groups
        assert (described.error_code, described.group_state) == (ErrorCode.group_id_not_found, "Dead")
        [described] = raw.call("describe_groups", 5, groups=[group]).groups
        assert (described.error_code, described.group_state) == (ErrorCode.none, "Dead")
        [described] = raw.call("consumer_group_describe", 1, group_ids=[group]).groups
        assert described.error_code == ErrorCode.group_id_not_found

    def test_who_may_do_what_is_not_told_of_groups_that_are_not_there(self, raw: Raw, group: str) -> None:
        asked = {"include_authorized_operations": True}
        [described] = raw.call("describe_groups", 6, groups=[group], **asked).groups
        assert described.authorized_operations == -(2**31)
        [described] = raw.call("consumer_group_describe", 1, group_ids=[group], **asked).groups
        assert described.authorized_operations == -(2**31)


class TestConsumerProtocol:
    def beat(
        self, raw: Raw, group: str, member: str, epoch: int, topic: str | None = None, **fields: Any
    ) -> Any:
        settings: dict[str, Any] = {"rebalance_timeout": 10_000, "topic_partitions": None, **fields}
        if topic is not None:
            settings |= {"subscribed_topic_names": [topic], "topic_partitions": []}
        return raw.call(
            "consumer_group_heartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **settings
        )

    def joined(self, raw: Raw, group: str, topic: str, member: str = "member-of-my-own-making") -> Any:
        answer = self.beat(raw, group, member, 0, topic)
        assert (answer.error_code, answer.member_id) == (ErrorCode.none, member)
        return answer

    def test_joining_brings_an_assignment_and_leaving_ends_it(
        self, raw: Raw, wide_topic: str, group: str
    ) -> None:
        first = self.joined(raw, group, wide_topic)
        assert first.member_epoch > 0
        [held] = first.assignment.topic_partitions
        assert (held.topic_id, sorted(held.partitions)) == (topic_id(raw, wide_topic), [0, 1, 2, 3])
        owned = [{"topic_id": held.topic_id, "partitions": list(held.partitions)}]
        again = self.beat(raw, group, first.member_id, first.member_epoch, topic_partitions=owned)
        assert (again.error_code, again.member_epoch) == (ErrorCode.none, first.member_epoch)
        left = self.beat(raw, group, first.member_id, -1)
        assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
        gone = self.beat(raw, group, first.member_id, first.member_epoch)
        assert gone.error_code == ErrorCode.unknown_member_id

    def test_members_and_epochs_that_are_not_the_groups(self, raw: Raw, topic: str, group: str) -> None:
        nobody = self.beat(raw, group, "stranger", 3)
        assert nobody.error_code == ErrorCode.group_id_not_found
        first = self.joined(raw, group, topic)
        assert self.beat(raw, group, "stranger", 3).error_code == ErrorCode.unknown_member_id
        ahead = self.beat(raw, group, first.member_id, first.member_epoch + 1)
        assert ahead.error_code == ErrorCode.fenced_member_epoch

    def test_a_member_that_is_still_known_joins_again(self, raw: Raw, wide_topic: str, group: str) -> None:
        self.joined(raw, group, wide_topic)
        for others in ([wide_topic, "later"], [wide_topic]):
            # Each change brings it to another epoch.
            self.joined(raw, group, wide_topic, "another")
            again = self.beat(
                raw,
                group,
                "member-of-my-own-making",
                0,
                subscribed_topic_names=others,
                topic_partitions=[],
            )
            assert again.error_code == ErrorCode.none
            assert again.assignment is not None

    def test_commits_are_checked_against_the_members_epoch(self, raw: Raw, topic: str, group: str) -> None:
        first = self.joined(raw, group, topic)
        member = {"member": first.member_id}
        assert commit(raw, group, topic, generation=first.member_epoch, **member) == ErrorCode.none
        stale = commit(raw, group, topic, generation=first.member_epoch + 1, **member)
        assert stale == ErrorCode.stale_member_epoch
        stranger = commit(raw, group, topic, generation=first.member_epoch, member="stranger")
        assert stranger == ErrorCode.unknown_member_id
        mine = fetched(raw, group, None, member_id=first.member_id, member_epoch=first.member_epoch)
        assert mine.error_code == ErrorCode.none
        stale = fetched(raw, group, None, member_id=first.member_id, member_epoch=first.member_epoch + 1)
        assert stale.error_code == ErrorCode.stale_member_epoch

    def test_requests_that_make_no_sense(self, raw: Raw, topic: str, group: str) -> None:
        wrong: list[dict[str, Any]] = [
            {"member": ""},
            {"group": ""},
            {"epoch": -3},
            {"rebalance_timeout": -1},
            {"topic_partitions": None, "subscribed_topic_names": [topic]},
            {"subscribed_topic_names": None, "topic_partitions": []},
            {"instance_id": ""},
        ]
        for fields in wrong:
            settings: dict[str, Any] = {"group": group, "member": "me", "epoch": 0, "topic": topic, **fields}
            if "topic_partitions" in fields:
                settings["topic"] = None
            refused = self.beat(raw, **settings)
            assert refused.error_code == ErrorCode.invalid_request, fields

    def test_an_assigner_that_is_not_there(self, raw: Raw, topic: str, group: str) -> None:
        for name in ("astrology", ""):
            refused = self.beat(raw, group, "me", 0, topic, server_assignor=name)
            assert refused.error_code == ErrorCode.unsupported_assignor

    def test_a_pattern_that_does_not_compile(self, raw: Raw, group: str) -> None:
        fields: dict[str, Any] = {"subscribed_topic_regex": "[", "topic_partitions": []}
        refused = self.beat(raw, group, "me", 0, **fields)
        assert refused.error_code == ErrorCode.invalid_regular_expression

    def test_an_instance_that_did_not_leave_is_not_released(self, raw: Raw, topic: str, group: str) -> None:
        first = self.beat(raw, group, "one", 0, topic, instance_id="static")
        assert first.error_code == ErrorCode.none
        second = self.beat(raw, group, "two", 0, topic, instance_id="static")
        assert second.error_code == ErrorCode.unreleased_instance_id
        left = self.beat(raw, group, "one", -2, instance_id="static")
        assert (left.error_code, left.member_epoch) == (ErrorCode.none, -2)
        second = self.beat(raw, group, "two", 0, topic, instance_id="static")
        assert second.error_code == ErrorCode.none
        fenced = self.beat(raw, group, "one", first.member_epoch, instance_id="static")
        assert fenced.error_code == ErrorCode.fenced_instance_id

    def test_a_group_is_described(self, raw: Raw, wide_topic: str, group: str) -> None:
        first = self.joined(raw, group, wide_topic)
        [described] = raw.call("consumer_group_describe", 1, group_ids=[group]).groups
        assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
        assert described.group_epoch == described.assignment_epoch == first.member_epoch
        [member] = described.members
        assert (member.member_id, member.member_epoch) == (first.member_id, first.member_epoch)
        assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
        assert member.subscribed_topic_names == (wide_topic,)
        [target] = member.target_assignment.topic_partitions
        assert (target.topic_name, sorted(target.partitions)) == (wide_topic, [0, 1, 2, 3])
        # Its other protocol does not know it.
        [classic] = raw.call("describe_groups", 6, groups=[group]).groups
        assert classic.error_code == ErrorCode.group_id_not_found


class TestCoordinator:
    def test_the_broker_coordinates_every_group(self, raw: Raw, broker: Broker, group: str) -> None:
        [found] = raw.call("find_coordinator", 6, key_type=0, coordinator_keys=[group]).coordinators
        assert (found.error_code, found.key, found.node_id) == (ErrorCode.none, group, 1)
        assert (found.host, found.port) == (broker.host, broker.port)
        first = raw.call("find_coordinator", 0, key=group)
        assert (first.error_code, first.node_id, first.port) == (ErrorCode.none, 1, broker.port)

    def test_other_keys_are_refused(self, raw: Raw) -> None:
        [found] = raw.call("find_coordinator", 6, key_type=9, coordinator_keys=["x"]).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.invalid_request, -1)
