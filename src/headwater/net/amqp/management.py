"""What the commands ask that AMQP has no method for: what is declared, and virtual hosts.

A request is a message to `amq.headwater.management` on the default exchange, its body a JSON object:

    {"list": "queues", "vhost": "/"}     also exchanges, bindings, vhosts, connections
    {"add_vhost": NAME}                  {"delete_vhost": NAME}

The answer, {"items": [...]} or {"error": "..."}, goes to the queue in its `reply_to`, with its `correlation_id`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.broker.queues.queue import Queue
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.core.errors import HeadwaterError
from headwater.record.amqp.message import Message, encode_address, pack_message
from headwater.record.amqp.properties import Properties

if TYPE_CHECKING:
    from headwater.net.amqp.connection import AmqpConnection
    from headwater.net.amqp.service import QueueService

__all__ = ["Management"]


Item = dict[str, Any]


class Management:
    """Answers the commands."""

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._lists: dict[str, Callable[[str], Iterable[Item]]] = {
            "queues": self._queues,
            "exchanges": self._exchanges,
            "bindings": self._bindings,
            "vhosts": self._vhosts,
            "connections": self._connections,
        }

    def answer(self, connection: AmqpConnection, message: Message) -> None:
        """Answer a request, once what it changes is on disk."""
        asked = message.properties()
        if not asked.reply_to:
            return
        waits = False
        try:
            waits, items = self._do(connection, message.body())
            answer: Item = {"items": items}
        except HeadwaterError as error:
            answer = {"error": error.text if isinstance(error, AmqpError) else str(error)}
        body = json.dumps(answer, default=_plain).encode("utf-8", "replace")
        properties = Properties(content_type="application/json", correlation_id=asked.correlation_id)
        reply = pack_message(encode_address("", asked.reply_to), properties, body)
        if waits:
            connection.after_sync(lambda: self._reply(connection, reply))
        else:
            self._reply(connection, reply)

    def _do(self, connection: AmqpConnection, body: bytes) -> tuple[bool, list[Item]]:
        try:
            request = json.loads(body)
        except ValueError as error:
            raise HeadwaterError(f"the request is not JSON: {error}") from None
        if not isinstance(request, dict):
            raise HeadwaterError("the request is no JSON object")
        definitions = self._service.definitions
        match request:
            case {"list": str(kind)} if kind in self._lists:
                vhost = request.get("vhost", connection.vhost)
                if not isinstance(vhost, str):
                    raise HeadwaterError("the vhost of a request is a string")
                return False, list(self._lists[kind](vhost))
            case {"add_vhost": str(name)}:
                return self._service.change(definitions.add_vhost(name)), []
            case {"delete_vhost": str(name)}:
                return self._delete_vhost(name), []
        raise HeadwaterError(f"there is no such request: {body.decode('utf-8', 'replace'):.200}")

    def _delete_vhost(self, name: str) -> bool:
        records = self._service.definitions.delete_vhost(name)
        for other in list(self._service.connections):
            if other.vhost == name:
                other.fail(AmqpError(ReplyCode.CONNECTION_FORCED, f"vhost '{name}' is deleted"))
        return self._service.change(records)

    def _reply(self, connection: AmqpConnection, reply: Message) -> None:
        service, to = self._service, reply.routing_key
        asker = service.asker(to)
        if asker is not None:
            asker.deliver_reply(reply)
            return
        queue = service.queues.get((connection.vhost, to))
        if queue is not None and queue.settings.topic is None:
            service.publish(queue, reply, service.now_ms())

    # -- lists -----------------------------------------------------------------------------------

    def _vhosts(self, vhost: str) -> Iterable[Item]:
        return ({"name": name} for name in self._service.definitions.vhosts)

    def _queues(self, vhost: str) -> Iterable[Item]:
        here = self._service.definitions.virtual_host(vhost)
        return (_queue(self._service.queues[vhost, name]) for name in here.queues)

    def _exchanges(self, vhost: str) -> Iterable[Item]:
        for exchange in self._service.definitions.virtual_host(vhost).exchanges.values():
            yield {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.kind.value,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": exchange.arguments,
            }

    def _bindings(self, vhost: str) -> Iterable[Item]:
        for binding in self._service.definitions.virtual_host(vhost).bindings:
            yield {
                "source": binding.source,
                "vhost": vhost,
                "destination": binding.destination,
                "destination_type": binding.kind,
                "routing_key": binding.routing_key,
                "arguments": binding.arguments,
            }

    def _connections(self, vhost: str) -> Iterable[Item]:
        for connection in self._service.connections:
            if connection.vhost != vhost:
                continue
            channels = connection.channels.values()
            yield {
                "number": connection.number,
                "peer": connection.peer,
                "user": connection.user,
                "vhost": connection.vhost,
                "channels": len(channels),
                "consumers": sum(len(channel.consumers) for channel in channels),
                "unacknowledged": sum(len(channel.unacked) for channel in channels),
                "blocked": connection.blocked,
            }


def _queue(queue: Queue) -> Item:
    definition, ready = queue.definition, len(queue)
    return {
        "name": definition.name,
        "vhost": definition.vhost,
        "durable": definition.durable,
        "exclusive": definition.exclusive,
        "auto_delete": definition.auto_delete,
        "arguments": definition.arguments,
        "messages_ready": ready,
        "messages_unacknowledged": queue.unacked,
        "messages": ready + queue.unacked,
        "message_bytes": queue.bytes,
        "consumers": len(queue.consumers),
        "memory_bytes": queue.memory,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
