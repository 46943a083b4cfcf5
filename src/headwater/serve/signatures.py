"""Signatures of messages: ours, which alerts bear, and those of services that post to us.

    headwater   Headwater-Signature: t=SECONDS,v1=HEX      HMAC-SHA256 of the time, a dot and the body
    stripe      Stripe-Signature: t=SECONDS,v1=HEX,…       the same; several v1 while a secret is changed
    github      X-Hub-Signature-256: sha256=HEX            HMAC-SHA256 of the body alone

What is compared is compared in constant time. A refusal says which header is wrong and nothing of what would be
right.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from headwater.app.definitions import Scheme
from headwater.core.errors import HeadwaterError

__all__ = ["SIGNATURE", "BadSignature", "check", "sign"]

SIGNATURE = "Headwater-Signature"
_HEADERS: Mapping[Scheme, str] = {
    "headwater": SIGNATURE,
    "stripe": "Stripe-Signature",
    "github": "X-Hub-Signature-256",
}
_MOST_SIGNATURES = 10
_LONGEST_HEADER = 2000


class BadSignature(HeadwaterError):
    """A message whose sender is not known to hold the secret, or that is too old."""


def sign(secret: bytes, body: bytes, at: int) -> str:
    """Return the signature header of a body: an HMAC-SHA256 over the time, a dot and the body.

    >>> sign(b"secret", b"{}", 1700000000)[:20]
    't=1700000000,v1=b856'
    """
    return f"t={at},v1={_digest(secret, f'{at}.'.encode() + body)}"


def check(
    scheme: Scheme,
    secret: bytes,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    tolerance: float,
) -> None:
    """Raise `BadSignature` unless a body was signed with the secret, within the tolerance where a time is signed.

    Names of headers are looked up as `headers` does it.
    """
    name = _HEADERS[scheme]
    header = headers.get(name)
    if header is None:
        raise BadSignature(f"the request has no {name}")
    malformed = BadSignature(f"{name} is malformed")
    if len(header) > _LONGEST_HEADER or not header.isascii():
        raise malformed
    if scheme == "github":
        kind, _, given = header.partition("=")
        if kind != "sha256" or not given:
            raise malformed
        if not hmac.compare_digest(_digest(secret, body), given):
            raise BadSignature(f"{name} does not fit the body")
        return
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for field, _, value in parts if field == "t"]
    signatures = [value for field, _, value in parts if field == "v1"]
    if len(times) != 1 or not times[0].isdigit() or len(times[0]) > 12:
        raise malformed
    if not 0 < len(signatures) <= _MOST_SIGNATURES:
        raise malformed
    wanted = _digest(secret, f"{times[0]}.".encode() + body)
    if not any(hmac.compare_digest(wanted, signature) for signature in signatures):
        raise BadSignature(f"{name} does not fit the body")
    if abs(now - int(times[0])) > tolerance:
        raise BadSignature(f"the time in {name} is too far from ours: send it anew, and check both clocks")


def _digest(secret: bytes, signed: bytes) -> str:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()
