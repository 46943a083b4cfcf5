"""What is taken for Kafka's behaviour here, asked of a Kafka 4.3.0."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.serial import entity_reader

from headwater.testing.kafka import RealKafka
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.schema import response_type
from headwater.wire.kafka.versions import Api, api_versions_answer, unsupported_api_versions_answer

from .fuzz_kafka import fuzz_one

pytestmark = pytest.mark.real

Ask = Callable[[bytes], bytes | None]

HEARTBEAT = struct.pack(">hhih", Api.HEARTBEAT, 4, 1, -1) + b"\0"
MEMBER = b"\x02g" + struct.pack(">i", 7) + b"\x02m" + b"\x00"
API_VERSIONS_BODY = b"\0\x02a\x02b\0"


@pytest.fixture(scope="module")
def ask(java: str) -> Iterator[Ask]:
    """Send a request to Kafka; get its response, or None when it closes the connection instead."""
    assert java

    def send(body: bytes) -> bytes | None:
        with socket.create_connection((kafka.host, kafka.port), timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                size = stream.read(4)
                return stream.read(struct.unpack(">i", size)[0]) if size else None

    with RealKafka() as kafka:
        yield send


def api_versions(response: bytes | None, version: int) -> Any:
    assert response is not None
    return entity_reader(response_type(Api.API_VERSIONS, version))(response, 4)[0]


@pytest.mark.parametrize("version", [3, 4])
def test_kafka_advertises_the_same_versions_and_group_feature(ask: Ask, version: int) -> None:
    theirs = api_versions(
        ask(struct.pack(">hhih", Api.API_VERSIONS, version, 1, -1) + API_VERSIONS_BODY), version
    )
    frame = encode_response(Api.API_VERSIONS, version, 1, api_versions_answer(version))
    ours = api_versions(frame[4:], version)
    known = {entry.api_key: entry for entry in theirs.api_keys}
    assert list(ours.api_keys) == [known[entry.api_key] for entry in ours.api_keys]
    assert set(ours.finalized_features) <= set(theirs.finalized_features)
    assert set(ours.supported_features) <= set(theirs.supported_features)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_kafka_answers_unknown_versions_of_api_versions_the_same(ask: Ask, version: int) -> None:
    response = ask(struct.pack(">hhih", Api.API_VERSIONS, version, 1, -1) + API_VERSIONS_BODY)
    assert response == encode_response(Api.API_VERSIONS, 0, 1, unsupported_api_versions_answer())[4:]


@pytest.mark.parametrize(
    "body",
    [
        HEARTBEAT + MEMBER + b"\0",
        HEARTBEAT + MEMBER + b"\0trailing",
        HEARTBEAT + MEMBER + b"\x02\x05\x01x\x63\x00",
        HEARTBEAT + MEMBER + b"\x02\x63\x00\x05\x00",
        HEARTBEAT + b"\x02\xff" + MEMBER[2:] + b"\0",
        struct.pack(">hhih", Api.HEARTBEAT, 4, 1, -2) + b"\0" + MEMBER + b"\0",
        struct.pack(">hhih", Api.HEARTBEAT, 4, 1, 1) + b"\xff\0" + MEMBER + b"\0",
        struct.pack(">hhihi", Api.METADATA, 8, 1, -1, -5) + bytes(3),
    ],
)
def test_kafka_answers_what_is_decoded_here(ask: Ask, body: bytes) -> None:
    assert ask(body) is not None
    assert fuzz_one(struct.pack(">i", len(body)) + body) == 1


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", Api.HEARTBEAT, 50, 1, -1) + bytes(30),
        struct.pack(">hhih", Api.PRODUCE, 2, 1, -1) + bytes(30),
        struct.pack(">hhihi", Api.METADATA, 8, 1, -1, 2**31 - 1),
        struct.pack(">hhihi", Api.METADATA, 0, 1, -1, -1),
        HEARTBEAT + b"\x00" + MEMBER[2:] + b"\0",
        HEARTBEAT + MEMBER,
        HEARTBEAT[:6],
    ],
)
def test_kafka_closes_the_connection_on_what_is_refused_here(ask: Ask, body: bytes) -> None:
    assert ask(body) is None
    assert fuzz_one(struct.pack(">i", len(body)) + body) == 0
