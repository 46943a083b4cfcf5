"""A blocking AMQP 0-9-1 client, for commands and pipelines: one thread, no callbacks, no heartbeats."""

from __future__ import annotations

from headwater.client.amqp.channel import Channel
from headwater.client.amqp.connection import Connection
from headwater.client.amqp.consumer import Consumer
from headwater.client.amqp.errors import Cancelled, NotFound, NotHeadwater, NotTaken, Refused, Unroutable
from headwater.client.amqp.messages import Binding, Declared, Delivery, Returned
from headwater.client.amqp.transfer import Transfer, origin

__all__ = [
    "Binding",
    "Cancelled",
    "Channel",
    "Connection",
    "Consumer",
    "Declared",
    "Delivery",
    "NotFound",
    "NotHeadwater",
    "NotTaken",
    "Refused",
    "Returned",
    "Transfer",
    "Unroutable",
    "origin",
]
