"""One channel: what is declared on it, published and received; in one thread, one thing at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from pamqp import commands
from pamqp.base import Frame as Command

from headwater.client.amqp.confirms import Confirms
from headwater.client.amqp.consumer import Consumer
from headwater.client.amqp.errors import NotTaken, Refused, Unroutable, refusal
from headwater.client.amqp.incoming import Incoming
from headwater.client.amqp.messages import Binding, Declared, Delivery, Returned
from headwater.client.errors import BadAnswer, ClientError
from headwater.core.amqp import ReplyCode
from headwater.record.amqp.message import pack_frames
from headwater.record.amqp.properties import NO_PROPERTIES, Properties
from headwater.record.amqp.tables import Table
from headwater.wire.amqp.methods import encode_method, make

if TYPE_CHECKING:
    from headwater.client.amqp.connection import Connection

__all__ = ["Channel"]

C = TypeVar("C", bound=Command)

WINDOW = 2000
"""How many messages may be without a confirm before publishing waits."""


class Channel:
    """A channel of a connection; `Connection.channel` opens it.

    A request that the broker refuses closes the channel, as AMQP has it: it raises what the broker said, and
    so does every later use.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self._error: ClientError | None = None
        self._incoming = Incoming()
        self._replies: deque[tuple[Command, Delivery | None]] = deque()
        self._window = WINDOW
        self._publishes: dict[tuple[str, str, bool], bytes] = {}
        self._confirms: Confirms | None = None
        self._returned: list[Returned] = []
        self._consumers: dict[str, Consumer] = {}
        self._consumed = 0

    def open(self) -> None:
        """Open it; the connection does this."""
        self._call(commands.Channel.Open, commands.Channel.OpenOk)

    def close(self) -> None:
        """Close it: what it received and has not acknowledged goes back to its queues."""
        if self._error is None:
            self._call(
                commands.Channel.Close,
                commands.Channel.CloseOk,
                reply_code=ReplyCode.REPLY_SUCCESS,
                reply_text="goodbye",
            )
            self._error = ClientError("the channel is closed")
        self._connection.forget(self._number)

    def declare_queue(
        self,
        name: str = "",
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
    ) -> Declared:
        """Make a queue, or look whether one is there; without a name, the broker chooses one."""
        answer = self._call(
            commands.Queue.Declare,
            commands.Queue.DeclareOk,
            queue=name,
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        return Declared(str(answer.queue), answer.message_count or 0, answer.consumer_count or 0)

    def look_up(self, name: str) -> Declared:
        """Return how a queue is, or raise `NotFound`."""
        return self.declare_queue(name, passive=True)

    def delete_queue(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue, and return how many messages went with it."""
        request, expected = commands.Queue.Delete, commands.Queue.DeleteOk
        answer = self._call(request, expected, queue=name, if_unused=if_unused, if_empty=if_empty)
        return answer.message_count or 0

    def purge_queue(self, name: str) -> int:
        """Drop the messages that are ready in a queue, and return how many they were."""
        return self._call(commands.Queue.Purge, commands.Queue.PurgeOk, queue=name).message_count or 0

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        passive: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        """Make an exchange, or look whether one is there."""
        self._call(
            commands.Exchange.Declare,
            commands.Exchange.DeclareOk,
            exchange=name,
            exchange_type=kind,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange."""
        request, expected = commands.Exchange.Delete, commands.Exchange.DeleteOk
        self._call(request, expected, exchange=name, if_unused=if_unused)

    def bind(self, binding: Binding) -> None:
        """Have an exchange send to a queue, or to another exchange."""
        if binding.to_exchange:
            self._call(commands.Exchange.Bind, commands.Exchange.BindOk, **binding.fields())
        else:
            self._call(commands.Queue.Bind, commands.Queue.BindOk, **binding.fields())

    def unbind(self, binding: Binding) -> None:
        """Take a binding back; where there is none, nothing happens."""
        if binding.to_exchange:
            self._call(commands.Exchange.Unbind, commands.Exchange.UnbindOk, **binding.fields())
        else:
            self._call(commands.Queue.Unbind, commands.Queue.UnbindOk, **binding.fields())

    def confirm(self, window: int = WINDOW) -> None:
        """Ask for a confirm of every message from now on, with at most so many of them outstanding."""
        self._call(commands.Confirm.Select, commands.Confirm.SelectOk)
        self._confirms = Confirms()
        self._window = window

    def publish(
        self,
        body: bytes,
        *,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | bytes = NO_PROPERTIES,
        mandatory: bool = False,
    ) -> int:
        """Publish a message, and return its number for the confirm, or 0 where none is asked for.

        It is sent soon; `flush` sends it now. With confirms, it waits while the window is full.
        """
        self._check()
        raw = properties if isinstance(properties, bytes) else properties.encode()
        key = (exchange, routing_key, mandatory)
        method = self._publishes.get(key)
        if method is None:
            publish = commands.Basic.Publish
            method = self._frame(publish, exchange=exchange, routing_key=routing_key, mandatory=mandatory)
            if len(self._publishes) < WINDOW:
                self._publishes[key] = method
        self._connection.send(method + pack_frames(self._number, raw, body, self._connection.frame_max))
        if self._confirms is None:
            return 0
        tag = self._confirms.published()
        if len(self._confirms.waiting) >= self._window:
            # Half of the window, so that a confirm of many is worth a read.
            self._settle_down_to(self._window // 2)
        return tag

    def settle(self) -> tuple[set[int], list[Returned]]:
        """Wait for every confirm; return the numbers that were refused, and what came back as unroutable."""
        self.wait_for_confirms()
        return self.refusals()

    def wait_for_confirms(self) -> None:
        """Return when everything published is confirmed or refused."""
        self._settle_down_to(0)

    def refusals(self) -> tuple[set[int], list[Returned]]:
        """Return, without waiting, what was refused and what came back since the last time."""
        refused: set[int] = set()
        if self._confirms is not None:
            refused, self._confirms.refused = self._confirms.refused, refused
        returned, self._returned = self._returned, []
        return refused, returned

    @property
    def unconfirmed(self) -> Collection[int]:
        """The numbers of what was published and neither confirmed nor refused by now."""
        return self._confirms.waiting.keys() if self._confirms else ()

    def flush(self) -> None:
        """Return when everything published is confirmed, or raise `NotTaken` or `Unroutable`."""
        if self._confirms is None:
            self._connection.flush()
            return
        refused, returned = self.settle()
        for message in returned:
            place = f"exchange {message.exchange!r}" if message.exchange else "the default exchange"
            raise Unroutable(
                f"no queue is bound to {place} for the routing key {message.routing_key!r} "
                f"({len(returned)} messages came back)"
            )
        if refused:
            raise NotTaken(f"{len(refused)} messages were refused: a queue that they went to is full")

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Return the next message of a queue, or None where none is ready."""
        return next(iter(self.get_many(queue, 1, no_ack=no_ack)), None)

    def get_many(self, queue: str, count: int, *, no_ack: bool = False) -> list[Delivery]:
        """Return up to so many messages; fewer mean that no more was ready for a moment."""
        self._check()
        self._connection.send(self._frame(commands.Basic.Get, queue=queue, no_ack=no_ack) * count)
        found = []
        for _ in range(count):
            self._wait(lambda: bool(self._replies), "basic.get")
            command, delivery = self._replies.popleft()
            if delivery is not None:
                found.append(delivery)
            elif not isinstance(command, commands.Basic.GetEmpty):
                raise BadAnswer(f"the broker answers {command.name} to Basic.Get")
        return found

    def consume(
        self, queue: str, *, prefetch: int = 100, no_ack: bool = False, seconds: float | None = None
    ) -> Consumer:
        """Return an iterator over the messages of a queue as they come.

        At most `prefetch` of them are here without an acknowledgement. The iterator ends when none has come
        for so many seconds; without, it waits for ever.
        """
        if not no_ack:
            self._call(commands.Basic.Qos, commands.Basic.QosOk, prefetch_count=prefetch)
        # The tag is ours: messages may come in the same read as the answer.
        self._consumed += 1
        tag = f"headwater-{self._consumed}"
        consumer = self._consumers[tag] = Consumer(self, queue, tag, no_ack=no_ack, seconds=seconds)
        request, expected = commands.Basic.Consume, commands.Basic.ConsumeOk
        self._call(request, expected, queue=queue, consumer_tag=tag, no_ack=no_ack)
        return consumer

    def cancel(self, tag: str) -> None:
        """End a consumer; what it has received stays to be acknowledged."""
        self._call(commands.Basic.Cancel, commands.Basic.CancelOk, consumer_tag=tag)
        self._consumers.pop(tag, None)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Take a message out of its queue, or all up to it; it is sent soon."""
        self._check()
        self._connection.send(self._frame(commands.Basic.Ack, delivery_tag=tag, multiple=multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Give a message back to its queue, or drop it there, which may send it to a dead-letter queue."""
        self._check()
        nack = commands.Basic.Nack
        self._connection.send(self._frame(nack, delivery_tag=tag, multiple=multiple, requeue=requeue))

    def pump(self, seconds: float | None) -> bool:
        """Read once; tell whether anything came within that time."""
        came = self._connection.pump(seconds)
        self._check()
        return came

    def take(self, kind: int, payload: bytes) -> None:
        """Take a frame that came; the connection hands them out."""
        arrived = self._incoming.feed(kind, payload)
        if arrived is None:
            return
        command, message = arrived
        if isinstance(command, commands.Basic.Deliver) and isinstance(message, Delivery):
            if consumer := self._consumers.get(str(command.consumer_tag)):
                consumer.arrived.append(message)
        elif isinstance(message, Returned):
            self._returned.append(message)
        elif isinstance(command, commands.Basic.Ack | commands.Basic.Nack):
            if self._confirms is not None:
                taken = isinstance(command, commands.Basic.Ack)
                self._confirms.settled(command.delivery_tag or 0, multiple=command.multiple, taken=taken)
        elif isinstance(command, commands.Basic.Cancel):
            if consumer := self._consumers.pop(str(command.consumer_tag), None):
                consumer.cancelled = True
        elif isinstance(command, commands.Channel.Flow):
            self._connection.send(self._frame(commands.Channel.FlowOk, active=command.active))
        elif isinstance(command, commands.Channel.Close):
            self._error = refusal(command.reply_code or 0, command.reply_text)
            self._connection.send(self._frame(commands.Channel.CloseOk))
            self._connection.forget(self._number)
        else:
            self._replies.append((command, message))

    def _call(self, request: type[Command], expected: type[C], **fields: Any) -> C:
        """Send a request and return its answer."""
        self._check()
        self._connection.send(self._frame(request, **fields))
        self._wait(lambda: bool(self._replies), request.name)
        answer, _ = self._replies.popleft()
        if not isinstance(answer, expected):
            raise BadAnswer(f"the broker answers {answer.name} to {request.name}")
        return answer

    def _frame(self, kind: type[Command], **fields: Any) -> bytes:
        try:
            return encode_method(self._number, make(kind, **fields))
        except ValueError as error:
            raise ClientError(str(error)) from error

    def _settle_down_to(self, count: int) -> None:
        confirms = self._confirms
        if confirms is None:
            raise Refused(0, "this channel asks for no confirms: call confirm() first")
        self._check()
        self._wait(lambda: len(confirms.waiting) <= count, "a publish")

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        self._connection.wait(lambda: self._error is not None or ready(), what)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
