"""The gate before a connection, fed with requests in any order: nobody gets in without the proof."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.broker.access.scram import ScramMechanism, salt_password
from headwater.broker.access.users import Upsertion, Users
from headwater.core.errors import ErrorCode
from headwater.net.kafka.authentication import Authentication
from headwater.testing.scram import ScramClient
from headwater.wire.kafka.errors import WireError
from headwater.wire.kafka.versions import Api

USER, PASSWORD = "alice", "wonder"
SALT = b"0123456789abcdef"


def stored_users() -> Users:
    users = Users(b"secret")
    for mechanism in ScramMechanism:
        salted = salt_password(mechanism, PASSWORD, SALT, 4096)
        for record in users.alter((), [Upsertion(USER, mechanism, 4096, SALT, salted)])[0]:
            users.replay(record)
    return users


USERS = stored_users()


class Door:
    """A connection and its listener, as far as the gate knows them."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.admitted: list[bytes] | None = None
        self.dismissed: tuple[str, bytes | None] | None = None
        self.mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
        self.failure_delay = 0.1
        self.peer = "192.0.2.1"
        counters = SimpleNamespace(requests=Counter[int](), errors=Counter[tuple[int, int]]())
        self.node = SimpleNamespace(users=USERS, counters=counters)
        door: Any = self
        self.gate = Authentication(door, door)

    def write(self, response: bytes) -> None:
        assert self.admitted is None
        assert self.dismissed is None
        self.written.append(response)

    def admit(self, held: list[bytes]) -> None:
        self.admitted = held

    def dismiss(self, reason: str, response: bytes | None, seconds: float) -> None:
        assert seconds == self.failure_delay
        self.dismissed = (reason, response)

    def api_versions(self, header: Any, message: Any) -> bytes:
        return b"versions"

    @property
    def open(self) -> bool:
        return self.admitted is None and self.dismissed is None


def request(api: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", api, version, 7, -1) + body


def handshake(mechanism: str, version: int = 1) -> bytes:
    name = mechanism.encode()
    return request(Api.SASL_HANDSHAKE, version, struct.pack(">h", len(name)) + name)


def token(data: bytes) -> bytes:
    return request(Api.SASL_AUTHENTICATE, 1, struct.pack(">i", len(data)) + data)


def answered(response: bytes) -> tuple[int, bytes]:
    """Return the code and the token of a SaslAuthenticate response, version 1."""
    code, length = struct.unpack_from(">hh", response, 8)
    position = 12 + max(length, 0)
    (size,) = struct.unpack_from(">i", response, position)
    return code, response[position + 4 : position + 4 + size]


def test_the_way_in() -> None:
    door = Door()
    client = ScramClient("sha256", USER, PASSWORD, "nonce")
    door.gate.take(request(Api.API_VERSIONS, 0))
    door.gate.take(handshake("SCRAM-SHA-256"))
    door.gate.take(token(client.first()))
    door.gate.take(token(client.final(answered(door.written[-1])[1])))
    client.check(answered(door.written[-1])[1])
    assert door.admitted == []
    assert door.written[0] == b"versions"


def test_a_failure_says_the_same_for_everybody_and_nothing_after_it_counts() -> None:
    told = []
    for user, password in ((USER, "wrong"), ("nobody", PASSWORD)):
        door = Door()
        client = ScramClient("sha512", user, password, "nonce")
        door.gate.take(handshake("SCRAM-SHA-512"))
        door.gate.take(token(client.first()))
        code, challenge = answered(door.written[-1])
        assert code == ErrorCode.none
        door.gate.take(token(client.final(challenge)))
        assert door.dismissed is not None
        assert repr(user) in door.dismissed[0]
        assert door.node.counters.errors == {(Api.SASL_AUTHENTICATE, ErrorCode.sasl_authentication_failed): 1}
        told.append(door.dismissed[1])
        before = len(door.written)
        door.gate.take(handshake("SCRAM-SHA-512"))
        assert len(door.written) == before
    assert told[0] == told[1]
    assert told[0] is not None


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_offered(version: int) -> None:
    door = Door()
    door.gate.take(handshake("PLAIN", version))
    assert door.dismissed is not None
    reason, response = door.dismissed
    assert "'PLAIN' is not one of SCRAM-SHA-256, SCRAM-SHA-512" in reason
    assert response is not None
    assert struct.unpack_from(">h", response, 8) == (ErrorCode.unsupported_sasl_mechanism,)


STEPS = st.one_of(
    st.sampled_from(["versions", "handshake", "old handshake", "first", "final", "bare first", "bare final"]),
    st.sampled_from(["metadata", "produce", "wrong first", "wrong final", "forged"]),
    st.binary(max_size=40),
)


@example(["versions", "handshake", "first", "final"])
@example(["old handshake", "bare first", "bare final"])
@example(["handshake", "first", "wrong final"])
@given(st.lists(STEPS, max_size=10))
def test_whatever_comes_only_the_proof_opens(steps: list[str | bytes]) -> None:
    door = Door()
    proved = False
    right, wrong = (ScramClient("sha256", USER, word, "nonce") for word in (PASSWORD, "wrong"))
    for step in steps:
        challenge = _challenge(door)
        client = wrong if isinstance(step, str) and step.startswith("wrong") else right
        frame = _frame(step, client, challenge)
        if frame is None or not door.open:
            continue
        try:
            door.gate.take(frame)
        except WireError:
            break
        if door.admitted is not None:
            proved = isinstance(step, str) and step in ("final", "bare final")
    assert (door.admitted is not None) == proved


def _challenge(door: Door) -> bytes | None:
    for response in reversed(door.written):
        start = response.find(b"r=nonce")
        if start >= 0:
            end = response.index(b",i=4096") + len(b",i=4096")
            return response[start:end]
    return None


def _frame(step: str | bytes, client: ScramClient, challenge: bytes | None) -> bytes | None:
    if isinstance(step, bytes):
        return step
    if step.endswith("first"):
        return client.first() if step.startswith("bare") else token(client.first())
    if step.endswith("final"):
        if challenge is None:
            return None
        final = client.final(challenge)
        return final if step.startswith("bare") else token(final)
    return {
        "versions": request(Api.API_VERSIONS, 0),
        "handshake": handshake("SCRAM-SHA-256"),
        "old handshake": handshake("SCRAM-SHA-256", 0),
        "metadata": request(Api.METADATA, 0, struct.pack(">i", 0)),
        "produce": request(Api.PRODUCE, 3, b"\xff\xff\xff\xff" + bytes(8)),
        "forged": token(b"c=biws,r=nonce,p=" + hashlib.sha256(b"x").hexdigest().encode()),
    }[step]
