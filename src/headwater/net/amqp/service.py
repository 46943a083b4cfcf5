"""The queues of a node: what is declared, what waits, and the disk and the clock behind them.

The event loop works in turns: a connection takes in a chunk of frames, which put messages into queues and
settle others; at the turn's end what has to be on disk is written, each queue that changed is dispatched, and
every connection with something to say writes once. Confirms follow when the disk has what they confirm.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.broker.queues.definitions import Definitions, QueueDefinition
from headwater.broker.queues.lane import Budget, Lane
from headwater.broker.queues.names import REPLY_QUEUE
from headwater.broker.queues.queue import Queue
from headwater.broker.queues.records import RecordKind, decode_key
from headwater.broker.queues.routing import Route
from headwater.broker.state import StateRecord
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.amqp.bridge import Bridge
from headwater.net.amqp.dead_letters import DeadLetters
from headwater.net.amqp.delayed import DelayedMessages
from headwater.net.amqp.management import Management
from headwater.net.amqp.storage import LaneLog, QueueStorage
from headwater.net.amqp.topic_lane import TopicLane
from headwater.net.state_log import StateLog
from headwater.record.amqp.message import Message

if TYPE_CHECKING:
    from headwater.net.amqp.channel import Channel
    from headwater.net.amqp.connection import AmqpConnection
    from headwater.net.node import Node

__all__ = ["QueueService"]

logger = logging.getLogger(__name__)

DEFINITIONS = "__queues"
_POSITIONS_SECONDS = 0.005
_SYNC_SECONDS = 0.05
_AGAIN_SECONDS = 1.0
_SWEEP_SECONDS = 0.1
_MOST = 4096
"""How many messages of a queue go out or expire before the other connections have their turn."""


class QueueService:
    """All queues of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.definitions = Definitions(self.random_bytes)
        self.budget = Budget(node.number("headwater.queue.memory.bytes"))
        self.storage = QueueStorage(node, node.logs.path / "queues")
        self.queues: dict[tuple[str, str], Queue] = {}
        self.dirty: dict[Queue, None] = {}
        """The queues to dispatch at the end of the turn."""
        self.talking: dict[AmqpConnection, None] = {}
        """The connections with something to send at the end of the turn."""
        self.confirming: dict[Channel, None] = {}
        """The channels that published something in this turn that they want confirmed."""
        self.replies: dict[str, Channel] = {}
        """The channels that wait for replies to what they asked, by the secret in their address."""
        self.connections: dict[AmqpConnection, None] = {}
        self.dead_letters = DeadLetters(self)
        self.bridge = Bridge(self)
        self.delayed = DelayedMessages(self)
        self.management = Management(self)
        self.write_failures = 0
        """How often something was not written that should have been."""
        self._log = StateLog(
            node.logs.open_state(DEFINITIONS, node.clock.wall_ms()), self._replay, node.clock
        )
        self.turn_ms = 0
        self._opened = False
        self._ending = False
        self._scheduled = False
        self._positions_due = False
        self._sync_due = False
        self._unfinished: dict[Queue, None] = {}
        """The queues that had more to give than one turn is for."""
        self._timed: dict[Queue, None] = {}
        self._sweeping = False

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read what is declared and what was settled, and recover the queues."""
        self._log.load()
        if forgotten := self.definitions.forget_transient():
            self._log.append(forgotten)
        self.storage.load()
        for vhost in self.definitions.vhosts.values():
            for definition in vhost.queues.values():
                self._open_queue(definition)
        self.storage.settle(definition.id for definition in self._definitions())
        self.bridge.settle()
        self.delayed.open()
        self._opened = True

    def _definitions(self) -> Iterable[QueueDefinition]:
        return (queue for vhost in self.definitions.vhosts.values() for queue in vhost.queues.values())

    def close(self) -> None:
        """Write what was settled, and close the logs."""
        now_ms = self.node.clock.wall_ms()
        self._end_turn_of(now_ms)
        if self.dead_letters.finish():
            self._end_turn_of(now_ms)
        self.dead_letters.close()
        self.delayed.close()
        self.bridge.close()
        self.storage.close()
        self._log.log.close()

    @property
    def failed(self) -> str | None:
        """Why nothing can be declared or settled any more, or None."""
        return self._log.log.error or self.storage.positions.log.error

    def now_ms(self) -> int:
        """Return the time that messages expire by."""
        return self.node.clock.wall_ms()

    def begin_turn(self) -> None:
        """Take the time of a turn: what is published in it, and may wait for no time at all, is dispatched in it."""
        self.turn_ms = self.node.clock.wall_ms()

    # -- definitions -----------------------------------------------------------------------------

    def change(self, records: Sequence[StateRecord]) -> bool:
        """Write a change of what is declared, which takes effect at once; true when a disk has to be waited for."""
        if not records:
            return False
        self._log.append(records)
        self.node.commit.add(self._log.log)
        return True

    def _replay(self, record: StateRecord) -> None:
        self.definitions.replay(record)
        if not self._opened:
            return
        key = decode_key(record.key)
        if key is None or key.kind is not RecordKind.QUEUE:
            return
        if record.value is not None:
            self._open_queue(self.definitions.vhosts[key.vhost].queues[key.name])
        elif (dropped := self.queues.pop((key.vhost, key.name), None)) is not None:
            self._drop_queue(dropped)

    def _open_queue(self, definition: QueueDefinition) -> None:
        def new_lane(priority: int) -> Lane:
            return self._new_lane(
                definition, lambda: self.queues[definition.vhost, definition.name], priority
            )

        queue = self.queues[definition.vhost, definition.name] = Queue(definition, new_lane)
        queue.used_ms = self.now_ms()
        queue.recover()
        if (reason := self.storage.broken.get(definition.id)) is not None:
            queue.fail(reason)
        if queue.settings.expires_ms is not None or queue.settings.message_ttl_ms is not None or len(queue):
            self.watch(queue)

    def _new_lane(self, definition: QueueDefinition, queue: Callable[[], Queue], priority: int) -> Lane:
        def expiry(message: Message, published_ms: int) -> int | None:
            return queue().expiry(message, published_ms)

        if definition.settings.topic is not None:
            return self.bridge.new_lane(definition, queue, expiry, fresh=self._opened)
        if not definition.durable or definition.exclusive:
            return Lane(self.budget, lambda: self.storage.open_transient(expiry), durable=False)

        def open_store() -> LaneLog:
            return self._shows(self.storage.open(definition, priority, expiry), queue)

        store = None if self._opened else self.storage.find(definition, priority, expiry)
        if store is not None:
            self._shows(store, queue)
        return Lane(self.budget, open_store, durable=True, store=store)

    def _shows(self, store: LaneLog, queue: Callable[[], Queue]) -> LaneLog:
        # What waits in the log alone may be read once it is synced.
        store.log.on_advance[store] = lambda: self._shown(queue())
        return store

    def _shown(self, queue: Queue) -> None:
        if any(lane.wakes for lane in queue.lanes):
            for lane in queue.lanes:
                lane.wakes = False
            self.touch(queue)

    def _drop_queue(self, queue: Queue) -> None:
        queue.deleted = True
        self.dirty.pop(queue, None)
        self._timed.pop(queue, None)
        for consumer in list(queue.consumers.all):
            queue.consumers.remove(consumer)
            consumer.receiver.cancelled(consumer)  # type: ignore[attr-defined]
        stores = [lane.store for lane in queue.lanes if isinstance(lane.store, LaneLog)]
        for lane in queue.lanes:
            if isinstance(lane, TopicLane):
                self.bridge.drop(lane)
            lane.drop()
        self.storage.delete(queue.definition.id, stores)

    @staticmethod
    def random_bytes() -> bytes:
        """Return random bytes for the name of a queue or a consumer."""
        return secrets.token_bytes(16)

    def asker(self, address: str) -> Channel | None:
        """Return the channel that waits for replies at an address, if it is such a one and still does."""
        token = address.removeprefix(f"{REPLY_QUEUE}.")
        return None if token == address else self.replies.get(token)

    def queues_of(self, route: Route) -> tuple[Queue, ...]:
        """Return the queues that a route leads to."""
        for definition in route.queues:
            if definition.settings.topic is not None:
                raise AmqpError(
                    ReplyCode.PRECONDITION_FAILED, f"{definition} takes messages from its topic alone"
                )
        return tuple(self.queues[definition.vhost, definition.name] for definition in route.queues)

    # -- messages --------------------------------------------------------------------------------

    def publish(self, queue: Queue, message: Message, now_ms: int) -> bool:
        """Put a message into a queue; false when the queue refuses it."""
        self.touch(queue)
        taken = queue.publish(message, now_ms)
        if queue.expires or queue.dead:
            self._after(queue)
        return taken

    def _after(self, queue: Queue) -> None:
        if queue.dead:
            self.dead_letters.bury(queue)
        if queue.expires:
            self.watch(queue)

    def place(
        self,
        message: Message,
        queues: tuple[Queue, ...],
        topics: tuple[str, ...],
        route: Route,
        channel: Channel,
    ) -> None:
        """Put a message into queues; one that refuses it is told to the publisher."""
        now_ms = self.turn_ms
        taken = True
        for topic in topics:
            channel.stored = True
            taken = self.bridge.append(topic, message) and taken
        if route.delayed:
            self.delayed.keep(channel.connection.vhost, route.delayed, message, route.delay_ms)
        for i, queue in enumerate(queues):
            taken = self.publish(queue, message.copy() if i else message, now_ms) and taken
        if not taken:
            if channel.confirms:
                channel.refuse(channel.published)
            else:
                for queue in queues:
                    queue.check()

    def forward(self, vhost: str, message: Message, route: Route) -> None:
        """Put a message where a route leads that no publisher waits for."""
        now_ms = self.turn_ms or self.now_ms()
        for topic in route.topics:
            self.bridge.append(topic, message)
        if route.delayed:
            self.delayed.keep(vhost, route.delayed, message, route.delay_ms)
        for definition in route.queues:
            if definition.settings.topic is None:
                self.publish(self.queues[definition.vhost, definition.name], message.copy(), now_ms)

    def manage(self, connection: AmqpConnection, message: Message) -> None:
        """Answer a question of the commands."""
        self.management.answer(connection, message)

    def touch(self, queue: Queue) -> None:
        """Dispatch a queue at the end of this turn."""
        self.dirty[queue] = None
        if not self._ending:
            self.end_soon()

    def end_soon(self) -> None:
        """End the turn once what is at hand is done, for all connections that had something to say."""
        if not self._scheduled:
            self._scheduled = True
            self.node.loop.call_soon(self._end_scheduled)

    def _end_scheduled(self) -> None:
        self._scheduled = False
        self.end_turn()

    def end_turn(self) -> None:
        """Write, dispatch, and send, for all that has happened since the last turn."""
        self._ending = True  # what touches a queue from here on is taken along
        self._end_turn_of(self.turn_ms or self.now_ms())
        self.turn_ms = 0
        self._ending = False
        unfinished, self._unfinished = self._unfinished, {}
        for queue in unfinished:
            if not queue.deleted:
                self.touch(queue)

    def _end_turn_of(self, now_ms: int) -> None:
        storage, dirty = self.storage, self.dirty
        failure: str | None = None
        logs: list[PartitionLog] = []
        while dirty or storage.touched:
            if storage.touched:
                failure = self._write(logs) or failure
            while dirty:
                queue = next(iter(dirty))
                del dirty[queue]
                self._dispatch(queue, now_ms)
        self.dead_letters.settle_after(logs, failure)
        if self.confirming:
            self._confirm(logs, failure)
        if storage.positions.dirty and not self._positions_due:
            self._positions_due = True
            self.node.loop.call_later(_POSITIONS_SECONDS, self._write_positions)
        talking, self.talking = self.talking, {}
        for connection in talking:
            connection.flush()

    def _dispatch(self, queue: Queue, now_ms: int) -> None:
        try:
            if queue.dispatch(now_ms, _MOST):
                self._unfinished[queue] = None
            if queue.expires or queue.dead:
                self._after(queue)
        except Exception:  # whoever's turn this is has nothing to do with it, nor have the other queues
            logger.exception("%s could not be dispatched", queue.definition)

    def _write(self, logs: list[PartitionLog]) -> str | None:
        touched, self.storage.touched = self.storage.touched, []
        for writer in touched:
            if self.storage.write(writer):
                logs.append(writer.log)
        failure = self.storage.take_failure()
        self.write_failures += failure is not None
        return failure

    def _confirm(self, logs: list[PartitionLog], failure: str | None) -> None:
        confirming, self.confirming = self.confirming, {}
        waits = [(channel, channel.published) for channel in confirming if not channel.confirm_now(failure)]
        if not waits:
            return

        def synced() -> None:
            failed = next((log.error for log in logs if log.error is not None), None)
            for channel, tag in waits:
                channel.confirm(tag, failed)
            for connection in list(self.talking):
                del self.talking[connection]
                connection.flush()

        if self.node.logs.synced:
            self.node.commit.wait(synced)
        else:
            synced()

    # -- positions -------------------------------------------------------------------------------

    def _write_positions(self) -> None:
        self._positions_due = False
        try:
            self.storage.positions.flush()
        except PartitionError as error:
            logger.error("what was acknowledged comes back after a restart: %s", error)
            self._positions_due = True
            self.node.loop.call_later(_AGAIN_SECONDS, self._write_positions)
            return
        if not self._sync_due:
            self._sync_due = True
            self.node.loop.call_later(_SYNC_SECONDS, self._sync_positions)

    def _sync_positions(self) -> None:
        self._sync_due = False
        self.node.commit.add(self.storage.positions.log)
        self.storage.shrink()

    def write_all(self) -> None:
        """Write all that was settled and published; the next sync makes it durable."""
        self.end_turn()
        if self.dead_letters.finish():
            self.end_turn()
        self.begin_turn()
        self.storage.positions.flush()
        self.node.commit.add(self.storage.positions.log)

    # -- time ------------------------------------------------------------------------------------

    def watch(self, queue: Queue) -> None:
        """Look at a queue from time to time, since something in it expires, or the queue itself does."""
        self._timed[queue] = None
        if not self._sweeping:
            self._sweeping = True
            self.node.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        more = False
        for queue in list(self._timed):
            more = queue.expire(now_ms, _MOST) or more
            if queue.dead:
                self.dead_letters.bury(queue)
            if self._has_expired(queue, now_ms):
                self.delete(queue)
            elif queue.settings.expires_ms is None and queue.next_expiry() is None:
                del self._timed[queue]
        if self.dirty or self.storage.touched:
            self.end_turn()
        self._sweeping = bool(self._timed)
        if more:
            self.node.loop.call_soon(self._sweep)
        elif self._sweeping:
            self.node.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _has_expired(self, queue: Queue, now_ms: int) -> bool:
        expires_ms = queue.settings.expires_ms
        return expires_ms is not None and not len(queue.consumers) and now_ms >= queue.used_ms + expires_ms

    def delete(self, queue: Queue) -> bool:
        """Delete a queue; true when a disk has to be waited for."""
        return self.change(self.definitions.delete_queue(queue.definition.vhost, queue.definition.name))
