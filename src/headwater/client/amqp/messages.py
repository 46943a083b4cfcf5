"""Messages, queues and bindings as a client sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.record.amqp.properties import Properties
from headwater.record.amqp.tables import Table

__all__ = ["Binding", "Declared", "Delivery", "Returned"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came from a queue, and the tag to settle it by."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    raw_properties: bytes
    body: bytes
    messages_left: int | None = None
    """How many were ready behind it; only a `get` is told."""

    @property
    def properties(self) -> Properties:
        """Its properties, decoded."""
        return Properties.decode(self.raw_properties)


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that came back because no queue was bound where it went."""

    code: int
    text: str
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Declared:
    """A queue, as the broker answered its declaration."""

    name: str
    messages: int
    """Those that are ready: neither on their way to a consumer nor waiting for its acknowledgement."""
    consumers: int


@dataclass(frozen=True, slots=True)
class Binding:
    """Where an exchange sends what, to a queue or to another exchange."""

    source: str
    destination: str
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)
    to_exchange: bool = False

    def fields(self) -> dict[str, Any]:
        """Return it as the methods of AMQP that bind and unbind have it."""
        common = {"routing_key": self.routing_key, "arguments": self.arguments}
        if self.to_exchange:
            return {"destination": self.destination, "source": self.source, **common}
        return {"queue": self.destination, "exchange": self.source, **common}
