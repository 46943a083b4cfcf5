from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import BadAnswer, BrokerError
from headwater.client.fetch import parse_fetch_response
from headwater.client.messages import decode_response, encode_request
from headwater.record.partitioner import murmur2, partition_of
from headwater.wire.kafka.codec import decode_request
from headwater.wire.kafka.errors import UnencodableAnswer
from headwater.wire.kafka.fetch import FetchPartition, encode_fetch_response, parse_fetch
from headwater.wire.kafka.versions import Api

_OFFSETS = {
    "replica_id": -1,
    "isolation_level": 1,
    "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
}


def test_a_request_reads_on_the_brokers_side() -> None:
    frame = encode_request(Api.LIST_OFFSETS, 6, 7, b"me", _OFFSETS)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = 4 + 2 + 2 + 4 + 2 + len(b"me") + 1
    request = decode_request(Api.LIST_OFFSETS, 6, bytes(frame[body:]))
    assert request.topics[0].partitions[0].timestamp == -1


def test_a_name_that_the_version_lacks_is_a_mistake() -> None:
    with pytest.raises(UnencodableAnswer, match="timeout"):
        encode_request(Api.LIST_OFFSETS, 6, 7, b"me", {**_OFFSETS, "timeout": 5})


@given(st.binary(max_size=60))
def test_any_answer_reads_or_is_refused(answer: bytes) -> None:
    for api_key, version in ((Api.METADATA, 11), (Api.OFFSET_FETCH, 7)):
        with suppress(BadAnswer):
            decode_response(api_key, version, answer)


@given(st.binary(max_size=80))
def test_any_fetched_bytes_read_or_are_refused(answer: bytes) -> None:
    with suppress(BadAnswer, BrokerError):
        parse_fetch_response(memoryview(answer))


@given(
    st.dictionaries(st.text("abc", min_size=1), st.lists(st.binary(max_size=9), max_size=3), max_size=3),
    st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 2**60)), max_size=2),
)
def test_a_fetch_reads_as_the_broker_wrote_it(
    topics: dict[str, list[bytes]], aborted: list[tuple[int, int]]
) -> None:
    answer = [
        (name, [FetchPartition(i, 0, 9, 8, 1, aborted, -1, len(data), data) for i, data in enumerate(parts)])
        for name, parts in topics.items()
    ]
    frame = b"".join(bytes(piece) for piece in encode_fetch_response(11, 5, 0, 0, 0, answer))
    found = parse_fetch_response(memoryview(frame)[4:])
    assert {place: bytes(fetched.records) for place, fetched in found.items()} == {
        (name, i): data for name, parts in topics.items() for i, data in enumerate(parts)
    }
    assert all(fetched.aborted == aborted and fetched[:4] == (0, 9, 8, 1) for fetched in found.values())


def test_an_error_of_the_whole_fetch_is_raised() -> None:
    frame = b"".join(bytes(piece) for piece in encode_fetch_response(11, 5, 0, 70, 0, []))
    with pytest.raises(BrokerError):
        parse_fetch_response(memoryview(frame)[4:])


def test_the_hash_is_kafkas() -> None:
    # From UtilsTest of Kafka's own sources.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
             b"abc": 479470107}  # fmt: skip
    for text, value in known.items():
        assert murmur2(text) == value % 2**32
    assert partition_of(b"abc", 4) == 479470107 % 4


def test_the_request_is_one_that_the_broker_parses() -> None:
    class Taken:
        client_id = b"me"
        frame = b""

        def next_correlation(self) -> int:
            return 3

        def send(self, frame: bytes, correlation: int) -> None:
            self.frame = bytes(frame)

    from headwater.client.fetch import begin_fetch

    taken = Taken()
    begin_fetch(taken, {("t", 1): 5, ("t", 2): 6, ("u", 0): 7}, max_bytes=99)  # type: ignore[arg-type]
    request = parse_fetch(taken.frame, 4 + 2 + 2 + 4 + 2 + 2, len(taken.frame), 11)
    assert [(target.topic, target.partition, target.fetch_offset) for target in request.targets] == [
        ("t", 1, 5), ("t", 2, 6), ("u", 0, 7),
    ]  # fmt: skip
    assert (request.isolation_level, request.max_bytes) == (1, 99)
