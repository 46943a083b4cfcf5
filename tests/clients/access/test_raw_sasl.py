"""The SASL protocol byte by byte, on Headwater and on Kafka: what is answered, and what closes the connection."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from clients.raw import Closed, Raw, frame
from headwater.testing.scram import ScramClient

from .secured import PASSWORD, USER, Secured

pytestmark = pytest.mark.real

MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
PLAIN = f"\0{USER}\0{PASSWORD}".encode()


@pytest.fixture
def raw(sasl_broker: Secured) -> Iterator[Raw]:
    with Raw(sasl_broker) as connection:
        yield connection


def shake_hands(raw: Raw, mechanism: str = "PLAIN", version: int = 1) -> None:
    answer = raw.call("sasl_handshake", version, mechanism=mechanism)
    assert answer.error_code == ErrorCode.none
    assert set(answer.mechanisms) == MECHANISMS


def assert_served(raw: Raw) -> None:
    assert raw.call("metadata", 9, topics=[]).brokers


def assert_closed(raw: Raw) -> None:
    with pytest.raises(Closed):
        raw.receive()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(raw: Raw, version: int) -> None:
    assert raw.call("api_versions", 3, client_software_name="raw", client_software_version="1").api_keys
    shake_hands(raw)
    answer = raw.call("sasl_authenticate", version, auth_bytes=PLAIN)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (ErrorCode.none, "", b"")
    assert_served(raw)


@pytest.mark.parametrize("bits", [256, 512])
def test_scram(raw: Raw, bits: int) -> None:
    client = ScramClient(f"sha{bits}", USER, PASSWORD, "nonce")
    shake_hands(raw, f"SCRAM-SHA-{bits}")
    challenge = raw.call("sasl_authenticate", 2, auth_bytes=client.first())
    assert challenge.error_code == ErrorCode.none
    answer = raw.call("sasl_authenticate", 2, auth_bytes=client.final(challenge.auth_bytes))
    assert answer.error_code == ErrorCode.none
    client.check(answer.auth_bytes)
    assert_served(raw)


def test_bare_tokens_after_the_first_version_of_the_handshake(raw: Raw) -> None:
    client = ScramClient("sha256", USER, PASSWORD, "nonce")
    shake_hands(raw, "SCRAM-SHA-256", version=0)
    raw.send(frame(client.first()))
    raw.send(frame(client.final(raw.receive())))
    client.check(raw.receive())
    assert_served(raw)


def test_a_bare_plain_token_is_answered_with_an_empty_one(raw: Raw) -> None:
    shake_hands(raw, version=0)
    raw.send(frame(PLAIN))
    assert raw.receive() == b""
    assert_served(raw)


def test_a_bare_token_that_fails_closes_without_a_word(raw: Raw) -> None:
    shake_hands(raw, version=0)
    raw.send(frame(PLAIN + b"x"))
    assert_closed(raw)


def test_a_failure_is_answered_after_a_delay_and_closes(raw: Raw) -> None:
    shake_hands(raw)
    began = time.monotonic()
    answer = raw.call("sasl_authenticate", 2, auth_bytes=PLAIN + b"x")
    assert time.monotonic() - began > 0.08
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert_closed(raw)


def test_an_unknown_mechanism_is_told_the_known_ones(raw: Raw) -> None:
    answer = raw.call("sasl_handshake", 1, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert set(answer.mechanisms) == MECHANISMS
    assert_closed(raw)


def test_a_request_before_the_handshake_closes(raw: Raw) -> None:
    raw.start("metadata", 9, topics=[])
    assert_closed(raw)


def test_tokens_before_the_handshake_close(raw: Raw) -> None:
    raw.start("sasl_authenticate", 2, auth_bytes=PLAIN)
    assert_closed(raw)


def test_asking_for_versions_twice_closes(raw: Raw) -> None:
    raw.call("api_versions", 0)
    raw.start("api_versions", 0)
    assert_closed(raw)


def test_an_unknown_version_of_api_versions_may_be_asked_again(raw: Raw) -> None:
    raw.send(frame(struct.pack(">hhih", 18, 99, 1, -1) + b"\0"))
    assert struct.unpack_from(">ih", raw.receive()) == (1, ErrorCode.unsupported_version)
    assert raw.call("api_versions", 0).api_keys
    shake_hands(raw)


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("api_versions", 0, {}),
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        ("list_groups", 0, {}),
    ],
)
def test_another_request_during_the_exchange_is_an_illegal_state(
    raw: Raw, api: str, version: int, fields: dict[str, str]
) -> None:
    shake_hands(raw)
    assert raw.call(api, version, **fields).error_code == ErrorCode.illegal_sasl_state
    assert_closed(raw)


def test_authenticating_again_is_an_illegal_state_and_harms_nobody(raw: Raw) -> None:
    shake_hands(raw)
    raw.call("sasl_authenticate", 2, auth_bytes=PLAIN)
    assert raw.call("sasl_handshake", 1, mechanism="PLAIN").error_code == ErrorCode.illegal_sasl_state
    answer = raw.call("sasl_authenticate", 2, auth_bytes=PLAIN)
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert_served(raw)


@pytest.mark.parametrize(
    "token", [b"", b"\0", b"\xff" * 40, b"n,,n=alice", b"n,,n=alice,r=", b"c=biws,r=x,p=y"], ids=repr
)
def test_tokens_that_make_no_sense_fail(raw: Raw, token: bytes) -> None:
    shake_hands(raw, "SCRAM-SHA-256")
    assert (
        raw.call("sasl_authenticate", 2, auth_bytes=token).error_code == ErrorCode.sasl_authentication_failed
    )
    assert_closed(raw)
