"""A client's side of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802), as bytes to send and bytes that came."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from headwater.client.errors import AuthenticationFailed

_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MAX_ITERATIONS = 10_000_000

Exchange = Generator[bytes, bytes, None]
"""Yields what to send; is sent what came; ends when the server has proved itself too."""


def exchange(mechanism: str, user: str, password: str) -> Exchange:
    """Return the exchange of a mechanism; raise `AuthenticationFailed` where it is not known."""
    if mechanism == "PLAIN":
        return _plain(user, password)
    if mechanism in _SCRAM:
        return _scram(_SCRAM[mechanism], user, password, secrets.token_urlsafe(24))
    known = ", ".join(["PLAIN", *_SCRAM])
    raise AuthenticationFailed(f"{mechanism!r} is not a SASL mechanism that this client knows: {known}")


def _plain(user: str, password: str) -> Exchange:
    yield b"\0".join([b"", user.encode(), password.encode()])


def _scram(algorithm: str, user: str, password: str, nonce: str) -> Exchange:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode()
    fields = _fields(challenge)
    try:
        combined, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise AuthenticationFailed(f"the broker's SCRAM challenge does not read: {challenge}") from error
    if not combined.startswith(nonce) or not 4096 <= iterations <= _MAX_ITERATIONS:
        raise AuthenticationFailed("the broker's SCRAM challenge is not one to answer")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    final = f"c=biws,r={combined}"
    message = f"{first},{challenge},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verdict = _fields((yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(verdict.get("v", "").encode(), base64.b64encode(expected)):
        raise AuthenticationFailed("the broker did not prove that it knows the password")


def _fields(text: str) -> dict[str, str]:
    return {
        name: value for name, equals, value in (part.partition("=") for part in text.split(",")) if equals
    }
