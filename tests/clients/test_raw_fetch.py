"""Fetch requests: limits, long polls, epochs and sessions."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.record.batch import batches

from .brokers import Broker
from .raw import Raw, batch, produce, request, topic_id

pytestmark = pytest.mark.real

WANTED = 1_000_000


def part(partition: int = 0, offset: int = 0, **fields: int) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": WANTED, **fields}


def fetch(raw: Raw, topics: dict[Any, list[dict[str, int]]], version: int = 17, **fields: Any) -> Any:
    """Fetch parts of topics, which are ids from version 13 on and names before."""
    name = "topic_id" if version >= 13 else "topic"
    asked = [{name: topic, "partitions": parts} for topic, parts in topics.items()]
    settings = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000, **fields}
    if version < 15:
        settings["replica_id"] = -1
    return raw.call("fetch", version, topics=asked, **settings)


def parts_of(answer: Any) -> dict[int, Any]:
    """Return the partitions of the answer about one topic."""
    return {each.partition_index: each for response in answer.responses for each in response.partitions}


def offsets_in(records: bytes) -> list[int]:
    return [found.base_offset for _place, found in batches(records)]


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_is_served(raw: Raw, topic: str, version: int) -> None:
    for _each in range(2):
        produce(raw, topic, batch(3))
    named = topic_id(raw, topic) if version >= 13 else topic
    [found] = parts_of(fetch(raw, {named: [part()]}, version)).values()
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (ErrorCode.none, 6, 6)
    assert offsets_in(found.records) == [0, 3]
    assert found.records[16:61] == batch(3)[16:61]


def test_the_batch_that_holds_the_offset_comes_first(raw: Raw, topic: str) -> None:
    for _each in range(3):
        produce(raw, topic, batch(4))
    [found] = parts_of(fetch(raw, {topic_id(raw, topic): [part(offset=6)]})).values()
    assert offsets_in(found.records) == [4, 8]


@pytest.mark.parametrize("offset", [-1, 3, 1 << 40])
def test_an_offset_out_of_range_is_an_error(raw: Raw, topic: str, offset: int) -> None:
    produce(raw, topic, batch(2))
    [found] = parts_of(fetch(raw, {topic_id(raw, topic): [part(offset=offset)]})).values()
    assert (found.error_code, found.high_watermark) == (ErrorCode.offset_out_of_range, -1)
    assert not found.records


def test_the_end_of_the_log_is_not_out_of_range(raw: Raw, topic: str) -> None:
    produce(raw, topic, batch(2))
    [found] = parts_of(fetch(raw, {topic_id(raw, topic): [part(offset=2)]})).values()
    assert (found.error_code, found.high_watermark, found.records) == (ErrorCode.none, 2, b"")


def test_what_is_not_there_is_unknown(raw: Raw, topic: str) -> None:
    [found] = parts_of(fetch(raw, {uuid.uuid4(): [part()]})).values()
    assert found.error_code == ErrorCode.unknown_topic_id
    [found] = parts_of(fetch(raw, {f"{topic}-absent": [part()]}, 12)).values()
    assert found.error_code == ErrorCode.unknown_topic_or_partition
    [found] = parts_of(fetch(raw, {topic_id(raw, topic): [part(5)]})).values()
    assert found.error_code == ErrorCode.unknown_topic_or_partition


def test_the_leaders_epoch_is_checked(raw: Raw, topic: str) -> None:
    known = topic_id(raw, topic)
    for epoch, error in ((-1, ErrorCode.none), (0, ErrorCode.none), (7, ErrorCode.unknown_leader_epoch)):
        [found] = parts_of(fetch(raw, {known: [part(current_leader_epoch=epoch)]})).values()
        assert found.error_code == error


def test_isolation_decides_whether_aborted_transactions_are_listed(raw: Raw, topic: str) -> None:
    produce(raw, topic, batch())
    known = topic_id(raw, topic)
    [found] = parts_of(fetch(raw, {known: [part()]}, isolation_level=0)).values()
    assert found.aborted_transactions is None
    [found] = parts_of(fetch(raw, {known: [part()]}, isolation_level=1)).values()
    assert found.aborted_transactions in (None, ())
    assert offsets_in(found.records) == [0]


class TestLimits:
    """At least one batch comes, however small the limits, so that a consumer always moves on."""

    def test_the_limit_of_a_partition_may_cut_a_batch(self, raw: Raw, topic: str) -> None:
        one = batch(value=b"x" * 1_000)
        for _each in range(3):
            produce(raw, topic, one)
        limited = part(partition_max_bytes=len(one) + 10)
        [found] = parts_of(fetch(raw, {topic_id(raw, topic): [limited]})).values()
        assert len(one) <= len(found.records) <= len(one) + 10
        assert found.records[17:][: len(one) - 17] == one[17:]

    @pytest.mark.parametrize("limit", [0, 1, 100])
    def test_a_batch_larger_than_every_limit_comes_whole(self, raw: Raw, topic: str, limit: int) -> None:
        one = batch(value=b"x" * 1_000)
        for _each in range(2):
            produce(raw, topic, one)
        limited = part(partition_max_bytes=limit)
        [found] = parts_of(fetch(raw, {topic_id(raw, topic): [limited]}, max_bytes=limit)).values()
        assert len(found.records) == len(one)

    def test_only_the_first_partition_may_exceed_the_limit_of_the_request(
        self, raw: Raw, wide_topic: str
    ) -> None:
        one = batch(value=b"x" * 1_000)
        for partition in range(3):
            produce(raw, wide_topic, one, partition=partition)
        parts = [part(partition) for partition in range(3)]
        found = parts_of(fetch(raw, {topic_id(raw, wide_topic): parts}, max_bytes=500))
        assert [len(found[partition].records) for partition in range(3)] == [len(one), 0, 0]

    def test_the_limit_of_the_request_counts_over_partitions(self, raw: Raw, wide_topic: str) -> None:
        one = batch(value=b"x" * 1_000)
        for partition in range(3):
            produce(raw, wide_topic, one, partition=partition)
        parts = [part(partition) for partition in range(3)]
        found = parts_of(fetch(raw, {topic_id(raw, wide_topic): parts}, max_bytes=2 * len(one)))
        assert [len(found[partition].records) for partition in range(3)] == [len(one), len(one), 0]


class TestLongPoll:
    """A fetch waits for its minimum, but no longer than it says."""

    def test_an_empty_fetch_waits_its_time(self, raw: Raw, topic: str) -> None:
        known = topic_id(raw, topic)
        began = time.monotonic()
        [found] = parts_of(fetch(raw, {known: [part()]}, max_wait=400)).values()
        assert 0.35 < time.monotonic() - began < 3
        assert found.records == b""

    def test_a_fetch_without_a_minimum_does_not_wait(self, raw: Raw, topic: str) -> None:
        known = topic_id(raw, topic)
        began = time.monotonic()
        fetch(raw, {known: [part()]}, max_wait=5_000, min_bytes=0)
        assert time.monotonic() - began < 2

    def test_a_produce_wakes_the_fetch(self, broker: Broker, raw: Raw, topic: str) -> None:
        known = topic_id(raw, topic)

        def later() -> None:
            time.sleep(0.3)
            with Raw(broker) as other:
                produce(other, topic, batch())

        thread = threading.Thread(target=later)
        began = time.monotonic()
        thread.start()
        [found] = parts_of(fetch(raw, {known: [part()]}, max_wait=10_000)).values()
        thread.join()
        assert 0.25 < time.monotonic() - began < 3
        assert offsets_in(found.records) == [0]

    def test_less_than_the_minimum_does_not_wake_it(self, broker: Broker, raw: Raw, topic: str) -> None:
        known = topic_id(raw, topic)
        raw.start(
            "fetch",
            17,
            **{"max_wait": 700, "min_bytes": 5_000, "max_bytes": WANTED},
            topics=[{"topic_id": known, "partitions": [part()]}],
        )
        began = time.monotonic()
        with Raw(broker) as other:
            produce(other, topic, batch())
        [found] = parts_of(raw.finish("fetch", 17)).values()
        assert time.monotonic() - began > 0.4
        assert offsets_in(found.records) == [0]

    def test_an_error_does_not_wait(self, raw: Raw, topic: str) -> None:
        known = topic_id(raw, topic)
        began = time.monotonic()
        [found] = parts_of(fetch(raw, {known: [part(offset=99)]}, max_wait=5_000)).values()
        assert found.error_code == ErrorCode.offset_out_of_range
        assert time.monotonic() - began < 2

    def test_other_requests_wait_behind_it(self, raw: Raw, topic: str) -> None:
        """Answers come in the order of the requests of a connection."""
        known = topic_id(raw, topic)
        asked = [{"topic_id": known, "partitions": [part()]}]
        began = time.monotonic()
        raw.send(request("fetch", 17, 1, max_wait=400, min_bytes=1, topics=asked) + request("metadata", 1, 2))
        assert [struct.unpack_from(">i", raw.receive())[0] for _each in range(2)] == [1, 2]
        assert time.monotonic() - began > 0.35


class TestSessions:
    """A session remembers what a consumer fetches, so that it sends and receives only changes."""

    def open(self, raw: Raw, topic: str, *parts: dict[str, int]) -> tuple[int, Any]:
        answer = fetch(raw, {topic_id(raw, topic): list(parts)}, session_id=0, session_epoch=0)
        assert answer.error_code == ErrorCode.none
        assert answer.session_id > 0
        return answer.session_id, answer

    def test_a_session_starts_in_full_and_goes_on_with_changes(self, raw: Raw, wide_topic: str) -> None:
        session, first = self.open(raw, wide_topic, part(0), part(1), part(2))
        assert sorted(parts_of(first)) == [0, 1, 2]
        nothing = fetch(raw, {}, session_id=session, session_epoch=1)
        assert (nothing.session_id, nothing.responses) == (session, ())
        produce(raw, wide_topic, batch(), partition=1)
        changed = fetch(raw, {}, session_id=session, session_epoch=2)
        assert sorted(parts_of(changed)) == [1]
        moved = fetch(raw, {topic_id(raw, wide_topic): [part(1, 1)]}, session_id=session, session_epoch=3)
        assert moved.responses == ()

    def test_partitions_are_added_and_forgotten(self, raw: Raw, wide_topic: str) -> None:
        known = topic_id(raw, wide_topic)
        for partition in range(3):
            produce(raw, wide_topic, batch(), partition=partition)
        session, first = self.open(raw, wide_topic, part(0))
        assert sorted(parts_of(first)) == [0]
        added = fetch(raw, {known: [part(2)]}, session_id=session, session_epoch=1)
        assert sorted(parts_of(added)) == [0, 2]
        forgotten = fetch(
            raw,
            {},
            session_id=session,
            session_epoch=2,
            forgotten_topics_data=[{"topic_id": known, "partitions": [0]}],
        )
        assert sorted(parts_of(forgotten)) == [2]

    def test_a_wrong_epoch_is_refused_and_the_right_one_still_goes(self, raw: Raw, topic: str) -> None:
        session, _first = self.open(raw, topic, part())
        for epoch in (2, 9):
            refused = fetch(raw, {}, session_id=session, session_epoch=epoch)
            assert refused.error_code == ErrorCode.invalid_fetch_session_epoch
            assert refused.responses == ()
        assert fetch(raw, {}, session_id=session, session_epoch=1).error_code == ErrorCode.none

    def test_a_session_that_is_not_there_is_refused(self, raw: Raw, topic: str) -> None:
        refused = fetch(raw, {topic_id(raw, topic): [part()]}, session_id=123_456_789, session_epoch=1)
        assert (refused.error_code, refused.session_id) == (ErrorCode.fetch_session_id_not_found, 0)

    def test_a_closed_session_is_not_there(self, raw: Raw, topic: str) -> None:
        session, _first = self.open(raw, topic, part())
        closing = fetch(raw, {}, session_id=session, session_epoch=-1)
        assert (closing.error_code, closing.session_id) == (ErrorCode.none, 0)
        refused = fetch(raw, {}, session_id=session, session_epoch=1)
        assert refused.error_code == ErrorCode.fetch_session_id_not_found

    def test_a_session_opened_in_place_of_another_ends_it(self, raw: Raw, topic: str) -> None:
        session, _first = self.open(raw, topic, part())
        known = topic_id(raw, topic)
        again = fetch(raw, {known: [part()]}, session_id=session, session_epoch=0)
        assert again.error_code == ErrorCode.none
        assert again.session_id not in (0, session)
        refused = fetch(raw, {}, session_id=session, session_epoch=1)
        assert refused.error_code == ErrorCode.fetch_session_id_not_found

    def test_a_session_may_start_without_partitions(self, raw: Raw, topic: str) -> None:
        produce(raw, topic, batch())
        opened = fetch(raw, {}, session_id=0, session_epoch=0)
        assert opened.session_id > 0
        known = topic_id(raw, topic)
        added = fetch(raw, {known: [part()]}, session_id=opened.session_id, session_epoch=1)
        assert sorted(parts_of(added)) == [0]

    def test_without_a_session_nothing_is_remembered(self, raw: Raw, topic: str) -> None:
        answer = fetch(raw, {topic_id(raw, topic): [part()]}, session_id=0, session_epoch=-1)
        assert answer.session_id == 0
        assert sorted(parts_of(answer)) == [0]

    def test_an_error_is_told_every_time(self, raw: Raw, topic: str) -> None:
        session, first = self.open(raw, topic, part(offset=99))
        assert parts_of(first)[0].error_code == ErrorCode.offset_out_of_range
        again = fetch(raw, {}, session_id=session, session_epoch=1)
        assert parts_of(again)[0].error_code == ErrorCode.offset_out_of_range
