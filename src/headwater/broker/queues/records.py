"""The records of `__amqp_definitions`: virtual hosts, exchanges, queues and bindings.

A key starts with a byte that says what the record is about, a value with its schema's version, 0:

    kind         key                                                     value
    1 vhost      name                                                    nothing
    2 exchange   vhost, name                                             flags, type, arguments
    3 queue      vhost, name                                             flags, id, owner, arguments
    4 binding    vhost, source, to a queue or not, destination,          nothing
                 routing key, arguments in the order of their names

Names are AMQP's short strings and, as those are, any bytes; arguments are field tables. A binding is all key,
since two of them are one when everything about them is the same.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from headwater.broker.queues.exchanges import Binding, Exchange, ExchangeKind
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.broker.state import StateRecord
from headwater.core.amqp import AmqpError
from headwater.core.errors import HeadwaterError
from headwater.record.amqp.tables import Table, decode_table, encode_table

VERSION = 0

_DURABLE, _AUTO_DELETE, _INTERNAL, _EXCLUSIVE = 1, 2, 4, 8
_OWNER = struct.Struct(">q")
_NOBODY = -1
_ID_BYTES = 16


class CorruptDefinition(HeadwaterError):
    """A record of the definitions' log that does not read as its schema says."""


class RecordKind(IntEnum):
    """What a record is about."""

    VHOST = 1
    EXCHANGE = 2
    QUEUE = 3
    BINDING = 4


class RecordKey(NamedTuple):
    """The decoded key of a record; `binding` is that of a binding's."""

    kind: RecordKind
    vhost: str
    name: str = ""
    binding: Binding | None = None


# Keys


def vhost_key(name: str) -> bytes:
    """Return the key of a virtual host."""
    return _key(RecordKind.VHOST, name)


def exchange_key(vhost: str, name: str) -> bytes:
    """Return the key of an exchange."""
    return _key(RecordKind.EXCHANGE, vhost, name)


def queue_key(vhost: str, name: str) -> bytes:
    """Return the key of a queue."""
    return _key(RecordKind.QUEUE, vhost, name)


def binding_key(vhost: str, binding: Binding) -> bytes:
    """Return the key of a binding, which is all there is to it."""
    to = "q" if binding.kind == "queue" else "e"
    ordered = dict(sorted(binding.arguments.items()))
    return _key(
        RecordKind.BINDING, vhost, binding.source, to, binding.destination, binding.routing_key
    ) + encode_table(ordered)


def _key(kind: RecordKind, *names: str) -> bytes:
    return bytes([kind]) + b"".join(map(_short, names))


def decode_key(data: bytes) -> RecordKey | None:
    """Return the key in `data`, or None when its kind is one that came later."""
    reader = _Reader(data)
    try:
        kind = RecordKind(reader.byte())
    except ValueError:
        return None
    vhost = reader.short()
    if kind is RecordKind.VHOST:
        return RecordKey(kind, vhost)
    if kind is not RecordKind.BINDING:
        return RecordKey(kind, vhost, reader.short())
    source, to, destination, routing_key = (reader.short() for _ in range(4))
    binding = Binding(source, destination, "queue" if to == "q" else "exchange", routing_key, reader.table())
    return RecordKey(kind, vhost, binding=binding)


# Records


def vhost_record(name: str) -> StateRecord:
    """Return the record of a virtual host."""
    return StateRecord(vhost_key(name), bytes([VERSION]))


def exchange_record(exchange: Exchange) -> StateRecord:
    """Return the record of an exchange."""
    flags = exchange.durable * _DURABLE | exchange.auto_delete * _AUTO_DELETE | exchange.internal * _INTERNAL
    value = bytes([VERSION, flags]) + _short(exchange.kind.value) + encode_table(exchange.arguments)
    return StateRecord(exchange_key(exchange.vhost, exchange.name), value)


def queue_record(queue: QueueDefinition) -> StateRecord:
    """Return the record of a queue."""
    flags = queue.durable * _DURABLE | queue.auto_delete * _AUTO_DELETE | queue.exclusive * _EXCLUSIVE
    owner = _OWNER.pack(_NOBODY if queue.owner is None else queue.owner)
    value = bytes([VERSION, flags]) + queue.id + owner + encode_table(queue.arguments)
    return StateRecord(queue_key(queue.vhost, queue.name), value)


def binding_record(vhost: str, binding: Binding) -> StateRecord:
    """Return the record of a binding."""
    return StateRecord(binding_key(vhost, binding), bytes([VERSION]))


def check_version(data: bytes) -> None:
    """Refuse a virtual host's or a binding's value that came later than this code."""
    _open(data)


def decode_exchange(key: RecordKey, data: bytes) -> Exchange:
    """Return the exchange in a record's value."""
    reader = _open(data)
    flags, kind = reader.byte(), reader.short()
    try:
        known = ExchangeKind(kind)
    except ValueError:
        raise CorruptDefinition(f"exchange {key.name} is of type {kind}, which is not known") from None
    return Exchange(
        key.vhost,
        key.name,
        known,
        durable=bool(flags & _DURABLE),
        auto_delete=bool(flags & _AUTO_DELETE),
        internal=bool(flags & _INTERNAL),
        arguments=reader.table(),
    )


def decode_queue(key: RecordKey, data: bytes) -> QueueDefinition:
    """Return the queue in a record's value."""
    reader = _open(data)
    flags, queue_id = reader.byte(), reader.take(_ID_BYTES)
    owner = int(_OWNER.unpack(reader.take(_OWNER.size))[0])
    return QueueDefinition(
        key.vhost,
        key.name,
        queue_id,
        durable=bool(flags & _DURABLE),
        exclusive=bool(flags & _EXCLUSIVE),
        auto_delete=bool(flags & _AUTO_DELETE),
        arguments=reader.table(),
        owner=None if owner == _NOBODY else owner,
    )


# Bytes


def _short(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return bytes([len(data)]) + data


def _open(data: bytes) -> _Reader:
    reader = _Reader(data)
    version = reader.byte()
    if version != VERSION:
        raise CorruptDefinition(f"a definition has version {version}, readable is {VERSION}")
    return reader


class _Reader:
    """Takes primitives from a record."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise CorruptDefinition(f"a definition ends at byte {len(self._data)}, {end} were expected")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> str:
        return self.take(self.byte()).decode(errors="surrogateescape")

    def table(self) -> Table:
        try:
            table, self._position = decode_table(self._data, self._position)
        except AmqpError as error:
            raise CorruptDefinition(f"the arguments of a definition: {error}") from None
        return table
