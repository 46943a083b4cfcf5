"""SCRAM (RFC 5802, RFC 7677): salted credentials, and the server's side of the exchange.

    client-first   n,,n=USER,r=CNONCE
    server-first   r=CNONCE SNONCE,s=SALT,i=ITERATIONS
    client-final   c=biws,r=CNONCE SNONCE,p=PROOF
    server-final   v=SIGNATURE

A user that does not exist is given a decoy credential by whoever looks it up, and fails where a wrong
password fails: with the last message, after the same work. As in Kafka, names and passwords are taken
as UTF-8 without SASLprep, and channels are not bound.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headwater.broker.access.errors import AuthenticationFailed

__all__ = [
    "DEFAULT_ITERATIONS",
    "MAX_ITERATIONS",
    "MIN_ITERATIONS",
    "Credential",
    "ScramExchange",
    "ScramMechanism",
    "credential_from_salted",
    "proves",
    "salt_password",
]

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds: RFC 7677 asks for the lower one, the upper one keeps a request from taking the CPU away."""
DEFAULT_ITERATIONS: Final = 8192


class ScramMechanism(Enum):
    """A hash to do SCRAM with; the numbers are those of Kafka's APIs."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name that clients ask for it by."""
        return f"SCRAM-SHA-{self.bits}"

    @property
    def bits(self) -> int:
        """The size of the hash."""
        return 256 if self is ScramMechanism.SHA_256 else 512

    @property
    def digest(self) -> str:
        """The name that hashlib knows the hash by."""
        return f"sha{self.bits}"


@dataclass(frozen=True, slots=True)
class Credential:
    """What is kept of a password: enough to check one, not enough to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return SaltedPassword = Hi(password, salt, i): slow on purpose, some milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_from_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> Credential:
    """Return what to keep of a salted password (RFC 5802, section 3)."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
    return Credential(salt, stored_key, server_key, iterations)


def proves(mechanism: ScramMechanism, credential: Credential, password: str) -> bool:
    """Tell whether a password is the one that a credential was made from."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    made = credential_from_salted(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


Find = Callable[[str], Credential]
"""Looks up a user's credential, and gives a decoy for a user that does not exist."""


class _State(Enum):
    CLIENT_FIRST = "client-first"
    CLIENT_FINAL = "client-final"
    OVER = "over"


class ScramExchange:
    """The server's side of one exchange: each token of the client in, the token to answer with out."""

    slow = False

    def __init__(self, mechanism: ScramMechanism, find: Find, nonce: str) -> None:
        self.mechanism = mechanism
        self.user: str | None = None
        self.complete = False
        self._find = find
        self._server_nonce = nonce
        self._state = _State.CLIENT_FIRST
        self._header = b""
        self._first = b""
        self._nonce = b""
        self._challenge = b""
        self._credential: Credential | None = None

    def answer(self, token: bytes) -> bytes:
        """Take the client's next token; raise `AuthenticationFailed` where the exchange ends badly."""
        state, self._state = self._state, _State.OVER
        if state is _State.CLIENT_FIRST:
            answer = self._take_first(token)
            self._state = _State.CLIENT_FINAL
        elif state is _State.CLIENT_FINAL:
            answer = self._take_final(token)
            self.complete = True
        else:
            raise self._failure("a token came after the last one")
        return answer

    def _take_first(self, token: bytes) -> bytes:
        flag, _, rest = token.partition(b",")
        authzid, comma, bare = rest.partition(b",")
        if flag not in (b"n", b"y") or not comma:
            raise self._failure("the first message does not start as SCRAM without channel binding does")
        fields = bare.split(b",")
        # A first attribute "m" would be an extension that must be understood (RFC 5802, section 5.1).
        if len(fields) < 2 or not fields[0].startswith(b"n=") or not fields[1].startswith(b"r="):
            raise self._failure("the first message has no name and nonce")
        self.user = self._name(fields[0][2:])
        client_nonce = fields[1][2:]
        if not client_nonce or not all(0x21 <= byte <= 0x7E for byte in client_nonce):
            raise self._failure("the client's nonce is not printable")
        if authzid and (authzid[:2] != b"a=" or self._name(authzid[2:]) != self.user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username",
                "the authorization id is not the user's name",
                self.user,
            )
        credential = self._credential = self._find(self.user)
        self._header = token[: len(token) - len(bare)]
        self._first = bare
        self._nonce = client_nonce + self._server_nonce.encode()
        salt = base64.b64encode(credential.salt)
        self._challenge = b"r=%s,s=%s,i=%d" % (self._nonce, salt, credential.iterations)
        return self._challenge

    def _take_final(self, token: bytes) -> bytes:
        credential = self._credential
        assert credential is not None, "the first message found one, if a decoy"
        without_proof, comma, proof_field = token.rpartition(b",p=")
        binding, _, rest = without_proof.partition(b",")
        nonce = rest.partition(b",")[0]
        if not comma or binding != b"c=" + base64.b64encode(self._header):
            raise self._failure("the last message does not repeat the first one's header")
        if nonce != b"r=" + self._nonce:
            raise self._failure("the last message has another nonce")
        digest = self.mechanism.digest
        try:
            proof = base64.b64decode(proof_field, validate=True)
        except (binascii.Error, ValueError):
            raise self._failure("the proof is not base64") from None
        message = b",".join((self._first, self._challenge, without_proof))
        signature = hmac.digest(credential.stored_key, message, digest)
        if len(proof) != len(signature):
            raise self._failure("the proof does not have the length of the hash")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(digest, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise self._failure("no such user, or another password")
        verifier = hmac.digest(credential.server_key, message, digest)
        return b"v=" + base64.b64encode(verifier)

    def _name(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self._failure("the user's name is not UTF-8") from None
        # "=" stands only at the start of the two escapes (RFC 5802, section 5.1).
        plain = text.replace("=2C", ",").replace("=3D", "=")
        if not text or "\0" in text or text.count("=") != text.count("=2C") + text.count("=3D"):
            raise self._failure("the user's name is not written as SCRAM asks")
        return plain

    def _failure(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self.mechanism.sasl_name,
            reason,
            self.user,
        )
