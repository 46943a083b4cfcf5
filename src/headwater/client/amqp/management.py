"""Requests that AMQP has no method for, and Headwater answers: what there is, and virtual hosts.

A request is a message to `amq.headwater.management` on the default exchange, whose answer comes by
RabbitMQ's direct reply-to: no queue is declared for it.
"""

from __future__ import annotations

import json
from typing import Any

from headwater.client.amqp.connection import Connection
from headwater.client.amqp.errors import NotHeadwater
from headwater.client.errors import BadAnswer, ClientError, Unreachable
from headwater.record.amqp.properties import Properties

__all__ = ["add_vhost", "delete_vhost", "list_items"]

_QUEUE = "amq.headwater.management"
_REPLY_TO = "amq.rabbitmq.reply-to"
_ID = "1"
_SECONDS = 30.0


def list_items(connection: Connection, kind: str) -> list[dict[str, Any]]:
    """Return the queues, exchanges, bindings, vhosts or connections of the connection's virtual host."""
    items: list[dict[str, Any]] = _ask(connection, {"list": kind, "vhost": connection.url.vhost})
    return items


def add_vhost(connection: Connection, name: str) -> None:
    """Make a virtual host."""
    _ask(connection, {"add_vhost": name})


def delete_vhost(connection: Connection, name: str) -> None:
    """Delete a virtual host, with its queues and exchanges."""
    _ask(connection, {"delete_vhost": name})


def _ask(connection: Connection, request: dict[str, Any]) -> Any:
    if not connection.is_headwater:
        product = " ".join(str(connection.server.get(name, "")) for name in ("product", "version")).strip()
        raise NotHeadwater(
            f"{connection.where} is {product or 'another broker'}, which does not answer Headwater's requests"
        )
    channel = connection.channel()
    answers = channel.consume(_REPLY_TO, no_ack=True, seconds=_SECONDS)
    properties = Properties(content_type="application/json", reply_to=_REPLY_TO, correlation_id=_ID)
    channel.confirm()
    channel.publish(json.dumps(request).encode(), routing_key=_QUEUE, properties=properties, mandatory=True)
    channel.flush()
    answer = next(answers, None)
    if answer is None:
        raise Unreachable(f"{connection.where} has not answered for {_SECONDS:g} s")
    channel.close()
    try:
        document = json.loads(answer.body)
        if "error" in document:
            raise ClientError(str(document["error"]))
        return document.get("items", [])
    except (ValueError, TypeError, AttributeError) as error:
        raise BadAnswer(f"{connection.where} answers what is not JSON: {error}") from error
