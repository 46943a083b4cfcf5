"""What is declared in all virtual hosts: exchanges, queues, bindings, rebuilt from their log.

Requests look at what is there and return the records that would change it; only `replay` changes anything. The
rules and the texts of refusals are RabbitMQ's.

    declare_*    what is there already is compared, and refused where it differs; a passive one only looks
    bind         once more is nothing more; identity is everything about a binding
    unbind       what is not there, or leads from or to what is not there, needs no unbinding
    delete_*     what is not there needs no deleting; bindings go along, and with an exchange's last binding
                 the exchange, where it was declared auto-delete

`version` grows with every change, for callers that remember routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.broker.queues import arguments as args
from headwater.broker.queues import exchanges, names, records
from headwater.broker.queues.equivalence import check_same_arguments, check_same_field
from headwater.broker.queues.exchanges import Binding, Exchange, ExchangeKind
from headwater.broker.queues.matching import Question
from headwater.broker.queues.names import DEFAULT_VHOST, Kind, stripped
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.broker.queues.records import RecordKey, RecordKind
from headwater.broker.queues.removal import Removal
from headwater.broker.queues.routing import Route
from headwater.broker.queues.virtual_host import VirtualHost
from headwater.broker.state import StateRecord
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table

__all__ = [
    "Binding",
    "Definitions",
    "Exchange",
    "ExchangeKind",
    "QueueDefinition",
    "Route",
    "VirtualHost",
]

NewId = Callable[[], bytes]
"""Hands out sixteen bytes that no queue has had."""


class Definitions:
    """Everything that clients declared."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self.vhosts: dict[str, VirtualHost] = {DEFAULT_VHOST: VirtualHost(DEFAULT_VHOST)}
        self.version = 0

    # The log

    def replay(self, record: StateRecord) -> None:
        """Apply a record, be it just appended or read on start."""
        key = records.decode_key(record.key)
        if key is None:
            return
        self.version += 1
        if key.kind is RecordKind.VHOST:
            self._replay_vhost(key.vhost, record.value)
            return
        vhost = self.vhosts.get(key.vhost)
        if vhost is None:
            return  # deleted further on in the log, and compaction has taken its record
        if record.value is None:
            _remove(vhost, key, record.key)
        elif key.binding is not None:
            records.check_version(record.value)
            vhost.put_binding(record.key, key.binding)
        elif key.kind is RecordKind.EXCHANGE:
            vhost.put_exchange(records.decode_exchange(key, record.value))
        else:
            vhost.put_queue(records.decode_queue(key, record.value))

    def _replay_vhost(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.vhosts.pop(name, None)
        elif name not in self.vhosts:
            records.check_version(value)
            self.vhosts[name] = VirtualHost(name)

    def forget_transient(self) -> list[StateRecord]:
        """Return the tombstones of what does not survive a restart: for start-up, after the log was read.

        These are queues and exchanges that are not durable, and the bindings from and to them.
        """
        gone: list[StateRecord] = []
        for vhost in self.vhosts.values():
            durable = {("queue", q.name) for q in vhost.queues.values() if q.durable}
            durable |= {("exchange", e.name) for e in vhost.exchanges.values() if e.durable}
            for key, binding in vhost.bindings_by_key.items():
                ends = {("exchange", binding.source), (binding.kind, binding.destination)}
                if not ends <= durable:
                    gone.append(StateRecord(key, None))
            for exchange in vhost.exchanges.values():
                if not exchange.durable:
                    gone.append(StateRecord(records.exchange_key(vhost.name, exchange.name), None))
            for queue in vhost.queues.values():
                if not queue.durable:
                    gone.append(StateRecord(records.queue_key(vhost.name, queue.name), None))
        return gone

    # Virtual hosts

    def virtual_host(self, name: str) -> VirtualHost:
        """Return the virtual host of that name, or raise NOT_ALLOWED as for a connection that opens it."""
        found = self.vhosts.get(name)
        if found is None:
            raise AmqpError(ReplyCode.NOT_ALLOWED, f"vhost {name} not found")
        return found

    def add_vhost(self, name: str) -> list[StateRecord]:
        """Return the records that add a virtual host."""
        if not name or len(name.encode(errors="surrogateescape")) > names.MAX_BYTES:
            raise AmqpError(
                ReplyCode.PRECONDITION_FAILED, f"the name of a vhost has 1 to {names.MAX_BYTES} bytes"
            )
        return [] if name in self.vhosts else [records.vhost_record(name)]

    def delete_vhost(self, name: str) -> list[StateRecord]:
        """Return the records that delete a virtual host with all that is declared in it."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise AmqpError(ReplyCode.NOT_FOUND, f"no vhost '{name}'")
        if name == DEFAULT_VHOST:
            raise AmqpError(ReplyCode.ACCESS_REFUSED, f"vhost '{name}' cannot be deleted")
        declared = vhost.exchanges.keys() - exchanges.predeclared(name).keys()
        keys = [
            *vhost.bindings_by_key,
            *(records.exchange_key(name, exchange) for exchange in sorted(declared)),
            *(records.queue_key(name, queue) for queue in vhost.queues),
            records.vhost_key(name),
        ]
        return [StateRecord(key, None) for key in keys]

    # Exchanges

    def declare_exchange(
        self,
        vhost: str,
        name: str,
        kind: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> list[StateRecord]:
        """Return the records that declare an exchange, or refuse one that differs from what is there."""
        here, name = self.virtual_host(vhost), stripped(name)
        if passive:
            names.check_not_default(name)
            here.exchange(name)
            return []
        wanted = Exchange(
            vhost, name, exchanges.kind_named(kind), durable, auto_delete, internal, arguments or {}
        )
        names.check_not_default(name)
        current = here.exchanges.get(name)
        if current is not None:
            exchanges.check_equivalent(current, wanted)
            return []
        exchanges.check_new(wanted)
        return [records.exchange_record(wanted)]

    def delete_exchange(self, vhost: str, name: str, *, if_unused: bool = False) -> list[StateRecord]:
        """Return the records that delete an exchange with its bindings."""
        here, name = self.virtual_host(vhost), stripped(name)
        names.check_not_default(name)
        if name.startswith(names.RESERVED_PREFIX):
            described = names.described("exchange", name, vhost)
            raise AmqpError(ReplyCode.ACCESS_REFUSED, f"deletion of system {described} not allowed")
        exchange = here.exchanges.get(name)
        if exchange is None:
            return []
        if if_unused and here.bindings_from(name):
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"{exchange} in use")
        removal = Removal(here)
        removal.exchange(exchange)
        return removal.records()

    def check_publish(self, vhost: str, exchange: str) -> Exchange:
        """Return an exchange that clients may publish to, or refuse."""
        found = self.virtual_host(vhost).exchange(exchange)
        if found.internal:
            raise AmqpError(ReplyCode.ACCESS_REFUSED, f"cannot publish to internal {found}")
        return found

    # Queues

    def declare_queue(
        self,
        vhost: str,
        name: str,
        *,
        owner: int,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        server_named: bool = False,
    ) -> list[StateRecord]:
        """Return the records that declare a queue, or refuse one that differs from what is there.

        `owner` is the connection that asks; with `server_named` the name is one by `names.server_name`.
        """
        here, name, arguments = self.virtual_host(vhost), stripped(name), arguments or {}
        if passive:
            self.queue_for(vhost, name, owner)
            return []
        if server_named:
            args.check_server_named(arguments)
        else:
            names.check_unreserved("queue", name)
        wanted = QueueDefinition(
            vhost,
            name,
            self._new_id(),
            durable=durable and not exclusive,  # it goes with its connection, which survives no restart
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
            owner=owner if exclusive else None,
        )
        current = here.queues.get(name)
        if current is not None:
            _check_equivalent(current, wanted)
            return []
        args.check_new_queue(
            arguments, str(wanted), durable=wanted.durable, exclusive=exclusive, auto_delete=auto_delete
        )
        return [records.queue_record(wanted)]

    def delete_queue(self, vhost: str, name: str, *, owner: int | None = None) -> list[StateRecord]:
        """Return the records that delete a queue with its bindings; without owner the broker itself asks."""
        here, name = self.virtual_host(vhost), stripped(name)
        queue = here.queues.get(name)
        if queue is None:
            return []
        _check_access(queue, owner)
        removal = Removal(here)
        removal.queue(queue)
        return removal.records()

    def queue_for(self, vhost: str, name: str, owner: int | None) -> QueueDefinition:
        """Return a queue that this connection may use, or raise NOT_FOUND or RESOURCE_LOCKED."""
        queue = self.virtual_host(vhost).queue(name)
        _check_access(queue, owner)
        return queue

    def owned_by(self, vhost: str, owner: int) -> list[QueueDefinition]:
        """Return the exclusive queues of a connection, which go when it does."""
        found = self.vhosts.get(vhost)  # it may be deleted by now
        return [] if found is None else found.owned_by(owner)

    # Bindings

    def bind(
        self,
        vhost: str,
        source: str,
        destination: str,
        kind: Kind,
        routing_key: str,
        arguments: Table | None = None,
        *,
        owner: int | None = None,
    ) -> list[StateRecord]:
        """Return the records that bind a queue or an exchange to the source."""
        here = self.virtual_host(vhost)
        binding = _binding(source, destination, kind, routing_key, arguments)
        exchange = here.exchange(binding.source)
        target = here.queue(binding.destination) if kind == "queue" else here.exchange(binding.destination)
        exchanges.check_binding(exchange, binding)
        if isinstance(target, QueueDefinition):
            _check_access(target, owner)
        record = records.binding_record(vhost, binding)
        return [] if record.key in here.bindings_by_key else [record]

    def unbind(
        self,
        vhost: str,
        source: str,
        destination: str,
        kind: Kind,
        routing_key: str,
        arguments: Table | None = None,
        *,
        owner: int | None = None,
    ) -> list[StateRecord]:
        """Return the records that take a binding back; they may delete its source, if that is auto-delete."""
        here = self.virtual_host(vhost)
        binding = _binding(source, destination, kind, routing_key, arguments)
        key = records.binding_key(vhost, binding)
        if key not in here.bindings_by_key:
            return []
        queue = here.queues.get(binding.destination) if kind == "queue" else None
        if queue is not None:
            _check_access(queue, owner)
        removal = Removal(here)
        removal.binding(key, binding)
        return removal.records()

    # Routing

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Callable[[], Table],
        *,
        copies: Sequence[str] = (),
        property_named: Callable[[str], Any] = lambda name: None,
    ) -> Route:
        """Return where a message goes, or raise NOT_FOUND for an exchange that is not there.

        `copies` are the further routing keys in its CC and BCC headers. `headers` and `property_named`, which
        takes one of `exchanges.HASH_PROPERTIES`, are called only where an exchange on the way asks for them.
        """
        here = self.virtual_host(vhost)
        return here.route(here.exchange(exchange), Question((routing_key, *copies), headers, property_named))


def _remove(vhost: VirtualHost, key: RecordKey, record_key: bytes) -> None:
    if key.kind is RecordKind.BINDING:
        vhost.drop_binding(record_key)
    elif key.kind is RecordKind.EXCHANGE:
        vhost.drop_exchange(key.name)
    else:
        vhost.drop_queue(key.name)


def _binding(source: str, destination: str, kind: Kind, routing_key: str, arguments: Table | None) -> Binding:
    binding = Binding(stripped(source), stripped(destination), kind, routing_key, arguments or {})
    if kind == "exchange":
        names.check_not_default(binding.destination)
    names.check_not_default(binding.source)
    return binding


def _check_access(queue: QueueDefinition, owner: int | None) -> None:
    if queue.owner is not None and owner is not None and queue.owner != owner:
        raise _locked(queue)


def _check_equivalent(current: QueueDefinition, wanted: QueueDefinition) -> None:
    if current.owner != wanted.owner:
        raise _locked(current)
    resource = str(current)
    check_same_field("durable", current.durable, wanted.durable, resource)
    check_same_field("auto_delete", current.auto_delete, wanted.auto_delete, resource)
    compared = args.compared_for(current.settings)
    check_same_arguments(current.arguments, wanted.arguments, compared, resource)


def _locked(queue: QueueDefinition) -> AmqpError:
    return AmqpError(
        ReplyCode.RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {queue}. It could be originally declared on another"
        " connection or the exclusive property value does not match that of the original declaration.",
    )
