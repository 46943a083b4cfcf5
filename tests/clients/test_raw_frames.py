"""Requests that no client sends: unknown, malformed, oversized, cut off."""

from __future__ import annotations

import struct

import pytest

from .brokers import Broker
from .raw import Closed, Raw, frame, header, request

pytestmark = pytest.mark.real

METADATA, API_VERSIONS = 3, 18
UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42


def answer(broker: Broker, data: bytes) -> bytes:
    with Raw(broker) as raw:
        raw.send(data)
        return raw.receive()


def size(number: int) -> bytes:
    return struct.pack(">i", number)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(header(999, 0)), id="unknown api"),
        pytest.param(frame(header(-1, 0)), id="negative api"),
        pytest.param(frame(header(METADATA, 99, flexible=True)), id="version too high"),
        pytest.param(frame(header(METADATA, -1)), id="negative version"),
        pytest.param(frame(header(0, 2)), id="produce version that Kafka 4 removed"),
        pytest.param(frame(header(1, 3)), id="fetch version that Kafka 4 removed"),
        pytest.param(frame(header(4, 0)), id="api between brokers"),
        pytest.param(size(-1), id="negative size"),
        pytest.param(size(-(2**31)), id="most negative size"),
        pytest.param(size(2**31 - 1), id="largest size"),
        pytest.param(size(104_857_601), id="one byte more than a request may have"),
        pytest.param(size(0), id="no bytes"),
        pytest.param(frame(b"\0\x03\0"), id="half a header"),
        pytest.param(frame(header(METADATA, 1) + size(2**31 - 1)), id="array of two billion"),
        pytest.param(frame(header(METADATA, 1) + size(1) + b"\0\x64abc"), id="string cut off"),
        pytest.param(frame(header(METADATA, 1) + size(1) + b"\xff\xff"), id="null in place of a string"),
        pytest.param(
            frame(header(METADATA, 9, flexible=True) + b"\x01\0\0\0" + b"\x80\xda\xc4\x09"),
            id="twenty million tagged fields that are not there",
        ),
        pytest.param(
            frame(header(METADATA, 9, flexible=True) + b"\xff\xff\xff\xff\x7f"), id="varint that overflows"
        ),
        pytest.param(frame(header(METADATA, 9, flexible=True) + b"\xff" * 12), id="varint without end"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="another protocol"),
    ],
)
def test_the_connection_is_closed_and_no_other(broker: Broker, data: bytes) -> None:
    with Raw(broker) as bystander:
        with pytest.raises(Closed):
            answer(broker, data)
        assert bystander.call("metadata", 1).brokers


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_of_the_future_is_answered_in_version_0(broker: Broker, version: int) -> None:
    payload = answer(broker, frame(header(API_VERSIONS, version, flexible=True)))
    correlation, error, count, api, lowest, highest = struct.unpack(">ihihhh", payload)
    assert (correlation, error, count) == (7, UNSUPPORTED_VERSION, 1)
    assert (api, lowest) == (API_VERSIONS, 0)
    assert highest == 4


def test_a_connection_outlives_api_versions_of_the_future(broker: Broker) -> None:
    with Raw(broker) as raw:
        raw.send(frame(header(API_VERSIONS, 99, flexible=True)))
        raw.receive()
        assert raw.call("api_versions", 0).error_code == 0


def test_api_versions_wants_a_client_name_that_can_be_shown(broker: Broker) -> None:
    with Raw(broker) as raw:
        fields = {"client_software_name": "bad name!", "client_software_version": "1"}
        refused = raw.call("api_versions", 3, **fields)
        assert (refused.error_code, refused.api_keys) == (INVALID_REQUEST, ())
        fields["client_software_name"] = "good.name-1"
        assert raw.call("api_versions", 3, **fields).error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_says_the_same(broker: Broker, version: int) -> None:
    fields = {"client_software_name": "raw", "client_software_version": "1"} if version >= 3 else {}
    with Raw(broker) as raw:
        found = {
            (each.api_key, each.min_version, each.max_version)
            for each in raw.call("api_versions", version, **fields).api_keys
        }
        first = {
            (each.api_key, each.min_version, each.max_version)
            for each in raw.call("api_versions", 0).api_keys
        }
    assert found == first
    assert (API_VERSIONS, 0, 4) in found
    assert (METADATA, 0, 13) in found


def test_bytes_after_a_request_in_its_frame_are_ignored(broker: Broker) -> None:
    payload = answer(broker, frame(header(METADATA, 1) + size(0) + b"garbage"))
    assert struct.unpack_from(">ii", payload) == (7, 1)


def test_a_negative_count_means_null_where_null_is_allowed(broker: Broker, topic: str) -> None:
    payload = answer(broker, frame(header(METADATA, 1) + size(-5)))
    assert topic.encode() in payload


def test_unknown_tagged_fields_are_skipped(broker: Broker) -> None:
    tagged = struct.pack(">hhih3s", METADATA, 9, 7, 3, b"raw") + b"\x02\x63\x03abc\x64\x00"
    payload = answer(broker, frame(tagged + b"\x01\0\0\0" + b"\x01\x65\x02xy"))
    assert struct.unpack_from(">i", payload)[0] == 7


def test_a_request_may_come_byte_by_byte(broker: Broker) -> None:
    with Raw(broker) as raw:
        for byte in request("metadata", 1, 5):
            raw.send(bytes([byte]))
        assert struct.unpack_from(">ii", raw.receive()) == (5, 1)


def test_many_requests_at_once_are_answered_in_order(broker: Broker, topic: str) -> None:
    named = [{"name": topic}]
    requests = b"".join(
        request("metadata", 1, each, topics=named) if each % 2 else request("api_versions", 0, each)
        for each in range(200)
    )
    with Raw(broker) as raw:
        raw.send(requests)
        assert [struct.unpack_from(">i", raw.receive())[0] for _each in range(200)] == list(range(200))


def test_a_client_may_have_no_name(broker: Broker) -> None:
    payload = answer(broker, frame(struct.pack(">hhih", METADATA, 1, 9, -1) + size(0)))
    assert struct.unpack_from(">ii", payload) == (9, 1)


def test_a_client_that_goes_away_in_the_middle_harms_nobody(broker: Broker) -> None:
    for cut in range(1, 20, 3):
        with Raw(broker) as raw:
            raw.send(request("metadata", 1)[:cut])
    with Raw(broker) as raw:
        assert raw.call("metadata", 1).brokers
