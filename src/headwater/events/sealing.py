"""Personal data, sealed: AES-256-GCM under a key of whom they are about.

What is sealed is tied to its event by the event's id, so it opens nowhere else.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from importlib.util import find_spec
from typing import Any

from headwater.events.errors import BadEvent, EventError

__all__ = ["KEY_BYTES", "check_available", "new_key", "seal", "unseal"]

KEY_BYTES = 32
_NONCE_BYTES = 12


def check_available() -> None:
    """Raise an `EventError` that says what to install, where nothing can be sealed."""
    if find_spec("cryptography") is None:
        raise EventError(
            "personal data are sealed with cryptography, which is not installed: pip install 'headwater[erasure]'"
        )


def new_key() -> bytes:
    """Return a key that nobody has."""
    return os.urandom(KEY_BYTES)


def seal(key: bytes, event_id: str, text: str) -> str:
    """Return data, a JSON object, as only who has the key can read them."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return b64encode(nonce + AESGCM(key).encrypt(nonce, text.encode(), event_id.encode())).decode()


def unseal(key: bytes, event_id: str, sealed: str) -> dict[str, Any]:
    """Return what was sealed; raise `BadEvent` where it is not that of this key and this event."""
    check_available()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = b64decode(sealed, validate=True)
        opened = AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], event_id.encode())
        found: dict[str, Any] = json.loads(opened)
    except (InvalidTag, ValueError):
        raise BadEvent(
            f"the personal data of the event {event_id} do not open with their key: somebody has changed one of them"
        ) from None
    return found
