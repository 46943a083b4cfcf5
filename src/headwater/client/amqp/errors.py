"""What can go wrong between a client of queues and their broker, beside what every client meets.

ClientError                 of headwater.client.errors, as are Unreachable, AuthenticationFailed and BadAnswer
├── Refused                 the broker closed the channel or the connection, with AMQP's code and its text
│   └── NotFound            … because there is no such queue, exchange or virtual host
├── NotTaken                the broker did not take a message that it was asked to confirm
│   └── Unroutable          … because no queue is bound where it went
├── Cancelled               the broker ended a consumer: its queue is gone
└── NotHeadwater            a request that only Headwater answers
"""

from __future__ import annotations

from headwater.client.errors import ClientError
from headwater.core.amqp import ReplyCode

__all__ = ["Cancelled", "NotFound", "NotHeadwater", "NotTaken", "Refused", "Unroutable", "refusal"]


class Refused(ClientError):
    """What the broker closed a channel or a connection for."""

    def __init__(self, code: int, text: str) -> None:
        # A broker may have codes of its own.
        self.code = code
        self.name = ReplyCode(code).name if code in ReplyCode.__members__.values() else str(code)
        self.text = text.removeprefix(f"{self.name} - ")
        super().__init__(
            f"{self.text} ({code} {self.name})" if self.name != str(code) else f"{text} ({code})"
        )


class NotFound(Refused):
    """There is no such queue, exchange or virtual host."""


class NotTaken(ClientError):
    """A message that the broker refused to keep."""


class Unroutable(NotTaken):
    """A message that went to no queue."""


class Cancelled(ClientError):
    """A consumer that the broker ended."""


class NotHeadwater(ClientError):
    """A broker that speaks AMQP, and is not Headwater."""


def refusal(code: int, text: str) -> Refused:
    """Return the error that a reply code stands for."""
    return NotFound(code, text) if code == ReplyCode.NOT_FOUND else Refused(code, text)
