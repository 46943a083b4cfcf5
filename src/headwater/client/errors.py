"""What can go wrong between a client of ours and a broker.

ClientError                the root of this package's tree
├── Unreachable            no broker of the address answers; retried until the deadline
├── AuthenticationFailed   the broker refuses the user, or cannot prove itself; not retried
├── BrokerError            a request answered with one of Kafka's error codes
│   └── UnknownTopic       … because there is no such topic or partition
└── BadAnswer              an answer that is not what the protocol says
"""

from __future__ import annotations

from headwater.core.errors import ErrorCode, HeadwaterError

__all__ = ["AuthenticationFailed", "BadAnswer", "BrokerError", "ClientError", "UnknownTopic", "Unreachable"]


class ClientError(HeadwaterError):
    """A broker that cannot be talked with, or that refuses what it is asked."""


class Unreachable(ClientError):
    """No broker answers."""


class AuthenticationFailed(ClientError):
    """The broker refuses the user and password, or does not prove that it knows them."""


class BadAnswer(ClientError):
    """Bytes that are not the answer to what was asked."""


class BrokerError(ClientError):
    """A request that is answered with an error code."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        # A broker newer than our list may have more codes.
        known = code in ErrorCode.__members__.values()
        self.code = ErrorCode(code) if known else ErrorCode.unknown_server_error
        detail = message or (self.code.__doc__ or "").strip().partition("\n")[0] or self.code.name
        super().__init__(f"{what}: {detail} ({self.code.name})")

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return bool(self.code.retriable)


class UnknownTopic(BrokerError):
    """There is no such topic, or no such partition of it."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, what, "there is no such topic or partition")

    @property
    def retriable(self) -> bool:
        """Whether to wait for it: Kafka's clients do, but here a topic is created before it is used."""
        return False
