"""SCRAM's messages against the RFCs' examples, an independent client, and anything at all."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.broker.access.errors import AuthenticationFailed
from headwater.broker.access.scram import (
    MIN_ITERATIONS,
    Credential,
    ScramExchange,
    ScramMechanism,
    credential_from_salted,
    proves,
    salt_password,
)
from headwater.testing.scram import ScramClient

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
mechanisms = pytest.mark.parametrize("mechanism", ScramMechanism, ids=lambda each: each.sasl_name)


def credential(mechanism: ScramMechanism, password: str, salt: bytes = SALT) -> Credential:
    salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
    return credential_from_salted(mechanism, salted, salt, MIN_ITERATIONS)


def exchange(mechanism: ScramMechanism, password: str, nonce: str = "server") -> ScramExchange:
    kept = credential(mechanism, password)
    return ScramExchange(mechanism, lambda _user: kept, nonce)


def test_the_example_of_rfc_7677() -> None:
    server = exchange(ScramMechanism.SHA_256, "pencil", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = server.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not server.complete
    answer = server.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (server.complete, server.user) == (True, "user")


@mechanisms
@settings(max_examples=examples(25), deadline=None)
@given(
    user=NAMES,
    password=NAMES,
    nonce=st.text(st.characters(min_codepoint=0x2D, max_codepoint=0x7E), min_size=1),
)
def test_a_client_with_the_password_gets_in(
    mechanism: ScramMechanism, user: str, password: str, nonce: str
) -> None:
    server = exchange(mechanism, password)
    client = ScramClient(mechanism.digest, user, password, nonce)
    client.check(server.answer(client.final(server.answer(client.first()))))
    assert (server.complete, server.user) == (True, user)
    assert proves(mechanism, credential(mechanism, password), password)


@mechanisms
@settings(max_examples=examples(15), deadline=None)
@given(password=NAMES, other=NAMES)
def test_a_client_with_another_password_does_not(
    mechanism: ScramMechanism, password: str, other: str
) -> None:
    if password == other:
        other += "x"
    server = exchange(mechanism, password)
    client = ScramClient(mechanism.digest, "alice", other, "nonce")
    final = client.final(server.answer(client.first()))
    with pytest.raises(AuthenticationFailed) as failed:
        server.answer(final)
    assert not server.complete
    assert failed.value.user == "alice"
    assert password not in (str(failed.value), failed.value.reason)
    assert not proves(mechanism, credential(mechanism, password), other)


@given(first=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_first_message_does_anything_but_fail_or_be_answered(first: bytes) -> None:
    server = ScramExchange(ScramMechanism.SHA_256, lambda _user: Credential(b"s", b"k" * 32, b"", 4096), "n")
    try:
        answer = server.answer(first)
    except AuthenticationFailed:
        with pytest.raises(AuthenticationFailed):
            server.answer(b"n,,n=user,r=abc")
    else:
        assert answer.startswith(b"r=")
    assert not server.complete


@given(
    final=st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: b"c=biws,r=abcserver,p=" + text.encode())
)
def test_no_last_message_without_the_proof_gets_in(final: bytes) -> None:
    server = ScramExchange(
        ScramMechanism.SHA_256, lambda _user: Credential(b"s", b"k" * 32, b"", 4096), "server"
    )
    server.answer(b"n,,n=user,r=abc")
    with pytest.raises(AuthenticationFailed):
        server.answer(final)
    assert not server.complete


@settings(max_examples=examples(60), deadline=None)
@given(position=st.integers(0, 200), bit=st.integers(0, 7))
def test_no_last_message_with_a_bit_changed_gets_in(position: int, bit: int) -> None:
    server = exchange(ScramMechanism.SHA_256, "pencil")
    client = ScramClient("sha256", "user", "pencil", "abc")
    final = bytearray(client.final(server.answer(client.first())))
    # The last two characters of the proof hold bits that base64 leaves unused.
    final[position % (len(final) - 2)] ^= 1 << bit
    with pytest.raises(AuthenticationFailed):
        server.answer(bytes(final))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"p=tls-unique,,n=user,r=abc", id="channel binding"),
        pytest.param(b"n,,m=ext,n=user,r=abc", id="mandatory extension"),
        pytest.param(b"n,,n=,r=abc", id="no name"),
        pytest.param(b"n,,n=us=er,r=abc", id="equals sign that escapes nothing"),
        pytest.param(b"n,,n=\xff,r=abc", id="not UTF-8"),
        pytest.param(b"n,,n=user,r=", id="no nonce"),
        pytest.param(b"n,,n=user,r=a\x01", id="unprintable nonce"),
        pytest.param(b"n,a=other,n=user,r=abc", id="another's authorization"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange(ScramMechanism.SHA_256, "pencil").answer(first)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=us=2Cer,"])
def test_headers_that_are_taken_have_to_be_repeated(header: bytes) -> None:
    server = exchange(ScramMechanism.SHA_512, "pencil")
    assert server.answer(header + b"n=us=2Cer,r=abc,ext=1")
    assert server.user == "us,er"
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-512") as failed:
        server.answer(b"c=AAAA,r=abcserver,p=AAAA")
    assert "header" in failed.value.reason


def test_a_token_after_the_last_is_refused() -> None:
    server = exchange(ScramMechanism.SHA_256, "pencil")
    client = ScramClient("sha256", "user", "pencil", "abc")
    server.answer(client.final(server.answer(client.first())))
    with pytest.raises(AuthenticationFailed):
        server.answer(client.first())


def test_a_credential_does_not_show_its_keys() -> None:
    kept = credential(ScramMechanism.SHA_256, "pencil")
    assert repr(kept) == "Credential(iterations=4096)"
