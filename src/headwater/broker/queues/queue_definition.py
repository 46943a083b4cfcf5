"""A declared queue: what it is, apart from the messages in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.broker.queues.arguments import QueueSettings
from headwater.broker.queues.names import described
from headwater.record.amqp.tables import Table


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue as it was declared."""

    vhost: str
    name: str
    id: bytes
    """Sixteen bytes that no other queue has, not even a later one of the same name."""
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table
    owner: int | None = None
    """The connection that an exclusive queue belongs to."""
    settings: QueueSettings = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", QueueSettings.of(self.arguments))

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return described("queue", self.name, self.vhost)
