"""PLAIN's one message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.access.errors import AuthenticationFailed
from headwater.broker.access.plain import PlainExchange
from headwater.broker.access.scram import ScramMechanism

from .test_scram import credential

KEPT = credential(ScramMechanism.SHA_512, "wonder")


def exchange() -> PlainExchange:
    return PlainExchange(lambda _user: (ScramMechanism.SHA_512, KEPT))


@pytest.mark.parametrize("token", [b"\0alice\0wonder", b"alice\0alice\0wonder"])
def test_the_password_lets_in(token: bytes) -> None:
    server = exchange()
    assert server.answer(token) == b""
    assert (server.complete, server.user) == (True, "alice")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice\0wonder", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN response: not UTF-8"),
    ],
)
def test_what_is_refused_is_told_as_kafka_tells_it(token: bytes, told: str) -> None:
    server = exchange()
    with pytest.raises(AuthenticationFailed) as failed:
        server.answer(token)
    assert str(failed.value) == told
    assert not server.complete


@given(token=st.binary(max_size=40).filter(lambda token: b"wonder" not in token and token.count(0) != 2))
def test_nothing_else_lets_in(token: bytes) -> None:
    server = exchange()
    with pytest.raises(AuthenticationFailed):
        server.answer(token)
    assert not server.complete
