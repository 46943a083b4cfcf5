"""SASL requests on a listener that has no SASL."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from .raw import Raw

pytestmark = pytest.mark.real


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_is_an_illegal_state(raw: Raw, version: int) -> None:
    answer = raw.call("sasl_handshake", version, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.illegal_sasl_state, ())
    assert raw.call("metadata", 9, topics=[]).brokers


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_token_is_an_illegal_state(raw: Raw, version: int) -> None:
    answer = raw.call("sasl_authenticate", version, auth_bytes=b"\0alice\0wonder")
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert raw.call("metadata", 9, topics=[]).brokers
