"""Signatures: vectors of the services that make them, and nothing but the signed bytes in time passes."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from headwater.app.definitions import Scheme
from headwater.serve.signatures import BadSignature, check, sign

NOW = 1_700_000_000


def passes(scheme: Scheme, secret: bytes, header: str, body: bytes, *, now: float = NOW) -> None:
    names = {
        "github": "X-Hub-Signature-256",
        "stripe": "Stripe-Signature",
        "headwater": "Headwater-Signature",
    }
    check(scheme, secret, Headers({names[scheme]: header}), body, now=now, tolerance=300)


def test_githubs_own_vector() -> None:
    """From its page on validating webhook deliveries."""
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    passes("github", b"It's a Secret to Everybody", header, b"Hello, World!")
    with pytest.raises(BadSignature, match="X-Hub-Signature-256 does not fit the body"):
        passes("github", b"It's a Secret to Everybody", header, b"Hello, World?")


def test_stripes_way() -> None:
    """The time, a dot and the body; while a secret is changed there are signatures of both."""
    body = b'{"id": "evt_1"}'
    good = hmac.new(b"whsec_a", f"{NOW}.".encode() + body, hashlib.sha256).hexdigest()
    passes("stripe", b"whsec_a", f"t={NOW},v1={good},v0=anything", body)
    passes("stripe", b"whsec_a", f"t={NOW},v1={'0' * 64},v1={good}", body)


def test_ours_is_what_alerts_bear() -> None:
    assert sign(b"key", b"{}", NOW) == (
        f"t={NOW},v1=" + hmac.new(b"key", b"1700000000.{}", hashlib.sha256).hexdigest()
    )
    passes("headwater", b"key", sign(b"key", b"{}", NOW), b"{}")


@pytest.mark.parametrize("scheme", ["headwater", "stripe"])
@pytest.mark.parametrize(("late", "good"), [(300, True), (301, False), (-300, True), (-301, False)])
def test_a_time_is_believed_within_the_tolerance(scheme: Scheme, late: int, good: bool) -> None:
    header = sign(b"key", b"{}", NOW)
    if good:
        passes(scheme, b"key", header, b"{}", now=NOW + late)
    else:
        with pytest.raises(BadSignature, match="too far from ours"):
            passes(scheme, b"key", header, b"{}", now=NOW + late)


@pytest.mark.parametrize("scheme", ["headwater", "stripe", "github"])
@pytest.mark.parametrize(
    "header",
    ["", "x", "t=1", "v1=a", "t=,v1=a", "t=-1,v1=a", "t=1,t=2,v1=a", "t=" + "9" * 13 + ",v1=a", "sha256=", "sha1=a",
     "t=1" + ",v1=a" * 11, "sha256=" + "a" * 3000, "t=1,v1=ä", "sha256=é"],
)  # fmt: skip
def test_malformed_headers_are_refused(scheme: Scheme, header: str) -> None:
    with pytest.raises(BadSignature):
        passes(scheme, b"key", header, b"{}", now=1)


def test_no_header_is_refused() -> None:
    with pytest.raises(BadSignature, match="has no Stripe-Signature"):
        check("stripe", b"key", Headers({}), b"{}", now=NOW, tolerance=300)


@given(st.binary(min_size=1), st.binary(), st.binary(min_size=1), st.binary())
@settings(max_examples=50)
def test_only_the_same_secret_and_body_pass(secret: bytes, body: bytes, other: bytes, changed: bytes) -> None:
    header = sign(secret, body, NOW)
    passes("headwater", secret, header, body)
    # HMAC pads a short key with zeros: such keys are the same key.
    if other.rstrip(b"\0") != secret.rstrip(b"\0") and len(other) <= 64:
        with pytest.raises(BadSignature) as refused:
            passes("headwater", other, header, body)
        assert header.partition("v1=")[2] not in str(refused.value)
    if changed != body:
        with pytest.raises(BadSignature):
            passes("headwater", secret, header, changed)
