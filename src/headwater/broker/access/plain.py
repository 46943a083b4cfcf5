"""PLAIN (RFC 4616): a name and a password in one message, checked against the user's SCRAM credential."""

from __future__ import annotations

from collections.abc import Callable

from headwater.broker.access.errors import AuthenticationFailed
from headwater.broker.access.scram import Credential, ScramMechanism, proves

__all__ = ["PLAIN", "PlainExchange"]

PLAIN = "PLAIN"

Find = Callable[[str], tuple[ScramMechanism, Credential]]
"""Looks up one of a user's credentials, and gives a decoy for a user that does not exist."""


class PlainExchange:
    """The server's side of one exchange, which is one token long."""

    slow = True
    """Salting the password takes milliseconds, which do not belong on an event loop."""

    def __init__(self, find: Find) -> None:
        self.user: str | None = None
        self.complete = False
        self._find = find

    def answer(self, token: bytes) -> bytes:
        """Take the client's token; raise `AuthenticationFailed` where it does not let the client in."""
        try:
            fields = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: not UTF-8", "not UTF-8") from None
        if len(fields) != 3:
            problem = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(fields), 4)}"
            raise AuthenticationFailed(problem, "not a name and a password")
        authzid, user, password = fields
        if not user or not password:
            missing = "username" if not user else "password"
            raise self._failure(f"{missing} not specified", f"no {missing}")
        self.user = user
        mechanism, credential = self._find(user)
        if not proves(mechanism, credential, password):
            raise self._failure("Invalid username or password", "no such user, or another password")
        if authzid and authzid != user:
            raise self._failure(
                "Client requested an authorization id that is different from username",
                "the authorization id is not the user's name",
            )
        self.complete = True
        return b""

    def _failure(self, problem: str, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"Authentication failed: {problem}", reason, self.user)
