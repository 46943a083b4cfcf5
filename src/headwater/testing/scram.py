"""A SCRAM client written from RFC 5802, to hold the server against."""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["ScramClient"]


class ScramClient:
    """One client's exchange: `first`, then `final` for the server's challenge, then `check` of its answer."""

    def __init__(self, digest: str, user: str, password: str, nonce: str) -> None:
        self._digest = digest
        self._password = password.encode()
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._nonce = nonce
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the last message, with the proof for the server's challenge."""
        fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
        assert fields["r"].startswith(self._nonce)
        assert len(fields["r"]) > len(self._nonce)
        assert int(fields["i"]) >= 4096
        salt = base64.b64decode(fields["s"])
        salted = self._hi(salt, int(fields["i"]))
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Fail unless the server has proved that it knows the credential."""
        assert answer == b"v=" + base64.b64encode(self._server_signature)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._digest).digest()

    def _hi(self, salt: bytes, iterations: int) -> bytes:
        # Hi() as section 2.2 defines it, not by way of the library's PBKDF2.
        block = self._hmac(self._password, salt + b"\0\0\0\1")
        total = int.from_bytes(block, "big")
        for _ in range(iterations - 1):
            block = self._hmac(self._password, block)
            total ^= int.from_bytes(block, "big")
        return total.to_bytes(len(block), "big")
