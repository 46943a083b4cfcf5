"""What can be wrong with bytes that claim to be Kafka's, or with what we answer.

WireError                     the root of this package's tree
├── MalformedRequest          the bytes are not what the protocol says; the connection is closed
│   └── BadFrame              … already the size in front of the request is not one
├── UnsupportedRequest        an API or version that is not served; Kafka closes the connection too
└── UnencodableAnswer         a handler's answer does not fit the response's schema: our own mistake
"""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["BadFrame", "MalformedRequest", "UnencodableAnswer", "UnsupportedRequest", "WireError"]


class WireError(HeadwaterError):
    """A message that cannot be read or written."""


class MalformedRequest(WireError):
    """Bytes from a client that are not the request they claim to be."""


class BadFrame(MalformedRequest):
    """A size prefix that is negative, over the limit, or not Kafka's at all."""


class UnsupportedRequest(WireError):
    """A request of an API, or of a version of it, that is not served."""


class UnencodableAnswer(WireError):
    """An answer that lacks a field, names one that does not exist, or holds a value of the wrong type."""
