"""A node's queues on a disk that fails on request, and a channel that remembers what it was sent."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.queue import Queue
from headwater.log import commit as commit_module
from headwater.log import journal as journal_module
from headwater.log.directory import LogDirectory
from headwater.net import node as node_module
from headwater.net.amqp.service import QueueService
from headwater.net.node import Node
from headwater.net.state_log import next_sync
from headwater.record.amqp.message import Message, encode_address, pack_message
from headwater.record.amqp.properties import Properties
from headwater.record.amqp.tables import Table
from headwater.testing.clock import ManualClock
from headwater.testing.disk import FaultyDisk

__all__ = ["Receiver", "Shelf", "message", "number_of"]

ME = 1
_SMALL_JOURNAL = {"headwater.journal.bytes": "1"}


def message(number: int, routing_key: str = "q", *, size: int = 0, **properties: Any) -> Message:
    """Return a message that is known by its body; it is persistent unless it says otherwise."""
    filled = Properties(**{"delivery_mode": 2, **properties})
    return pack_message(encode_address("", routing_key), filled, str(number).encode().ljust(size))


def number_of(found: Message) -> int:
    return int(found.body())


class Receiver:
    """A channel without a connection: what is published on it is confirmed, and what is delivered kept."""

    room = 1 << 40
    choked = False
    closing = False
    confirms = True

    def __init__(self) -> None:
        self.unacked: list[Message] = []
        self.numbers: list[int] = []
        self.published = 0
        self.stored = True
        self.confirmed: list[tuple[int, str | None]] = []
        """Each tag up to which something was confirmed, and what went wrong."""

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        for each in messages:
            each.consumer = consumer
            self.numbers.append(number_of(each))
            if not consumer.no_ack:
                self.unacked.append(each)

    def cancelled(self, consumer: Consumer) -> None:
        """Take note of nothing."""

    def confirm_now(self, failure: str | None) -> bool:
        if failure is not None:
            self.confirmed.append((self.published, failure))
        return failure is not None

    def confirm(self, tag: int, failure: str | None) -> None:
        self.confirmed.append((tag, failure))


class MortalLoop:
    """The event loop as one process knows it: what it has planned ends with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = False

    def end(self) -> None:
        self._ended = True

    def _call(self, call: Callable[..., object], *values: Any) -> None:
        if not self._ended:
            call(*values)

    def call_soon(self, call: Callable[..., object], *values: Any) -> asyncio.Handle:
        return self._loop.call_soon(self._call, call, *values)

    def call_later(self, seconds: float, call: Callable[..., object], *values: Any) -> asyncio.Handle:
        return self._loop.call_later(seconds, self._call, call, *values)

    def run_in_executor(self, executor: None, call: Callable[[], object]) -> object:
        return self._loop.run_in_executor(executor, call)


class Shelf:
    """Nodes one after the other on one disk, through stops and crashes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, synced: bool = True) -> None:
        root.mkdir()
        self.disk = FaultyDisk(root)
        self.clock = ManualClock()
        self.synced = synced
        self._crashes = 0

        def directory(path: Path, *, synced: bool, journal_bytes: int, archive: Path | None) -> LogDirectory:
            return LogDirectory(
                path, synced=synced, disk=self.disk, journal_bytes=journal_bytes, archive=archive
            )

        monkeypatch.setattr(node_module, "LogDirectory", directory)
        # A journal that is there soon, and soon full.
        monkeypatch.setattr(commit_module, "JOURNAL_AFTER", 3)
        monkeypatch.setattr(journal_module, "MOST", 16 * 1024)
        monkeypatch.setattr(journal_module, "LEAST_BYTES", 64 * 1024)

    def start(self) -> QueueService:
        self.node = Node(self.disk.root, self.clock, _SMALL_JOURNAL, synced=self.synced, queues=True)
        self.loop = MortalLoop(self.node.loop)
        self.node.loop = self.loop  # type: ignore[assignment]
        self.node.open()
        return self.service

    @property
    def service(self) -> QueueService:
        return self.node.queue_service

    async def stop(self) -> None:
        await self.node.close()
        self.loop.end()

    async def restart(self) -> QueueService:
        await self.stop()
        return self.start()

    def kill(self) -> QueueService:
        """End the process, and start another: what was written is there, synced or not."""
        self._end()
        return self.start()

    def crash(self, chance: random.Random | None = None) -> QueueService:
        """Lose power, and start again: what was not synced may be gone."""
        self._crashes += 1
        root = self.disk.root
        after = self.disk.crash(root.with_name(f"{root.name}-{self._crashes}"), chance)
        self._end()
        self.disk = after
        return self.start()

    def _end(self) -> None:
        self.loop.end()
        self.node.commit.close()
        self.node.cold.close()
        self.disk.kill()
        os.close(self.node.logs._lock)

    # -- queues ----------------------------------------------------------------------------------

    def declare(self, name: str, arguments: Table | None = None, *, durable: bool = True) -> Queue:
        definitions = self.service.definitions
        records = definitions.declare_queue(
            "/", name, passive=False, durable=durable, exclusive=False, auto_delete=False,
            arguments=arguments or {}, owner=ME,
        )  # fmt: skip
        self.service.change(records)
        return self.queue(name)

    def queue(self, name: str = "q") -> Queue:
        return self.service.queues["/", name]

    def delete(self, name: str = "q") -> None:
        self.service.delete(self.queue(name))

    def publish(self, messages: Iterable[Message], name: str = "q", receiver: Receiver | None = None) -> None:
        """Publish in one turn."""
        for each in messages:
            self.service.publish(self.queue(name), each, self.clock.wall_ms())
            if receiver is not None:
                receiver.published += 1
                self.service.confirming[receiver] = None  # type: ignore[index]
        self.service.end_turn()

    async def sync(self) -> None:
        """Have all that was published on disk."""
        await next_sync(self.node.commit)

    async def settle(self) -> None:
        """Have all that was acknowledged on disk, too."""
        self.service.write_all()
        await self.sync()

    def consume(
        self, name: str = "q", *, prefetch: int = 0, no_ack: bool = False, receiver: Receiver | None = None
    ) -> Receiver:
        receiver = receiver or Receiver()
        consumer = Consumer(self.queue(name), receiver, f"c{id(receiver)}", prefetch=prefetch, no_ack=no_ack)
        self.queue(name).add_consumer(consumer)
        self.service.touch(self.queue(name))
        self.service.end_turn()
        return receiver

    def acknowledge(self, receiver: Receiver, count: int | None = None) -> None:
        """Acknowledge the first ones."""
        done = receiver.unacked[:count]
        receiver.unacked = receiver.unacked[len(done) :]
        for each in done:
            each.consumer.unacked -= 1
            each.consumer.queue.acknowledge(each)
            self.service.touch(each.consumer.queue)
        self.service.end_turn()

    def rest(self, name: str = "q") -> list[tuple[int, bool]]:
        """Take all that waits, and tell what was flagged as redelivered."""
        queue = self.queue(name)
        taker = Consumer(queue, Receiver(), "", no_ack=True)
        found = []
        while (taken := queue.get(taker, self.clock.wall_ms())) is not None:
            found.append((number_of(taken), taken.deliveries > 0))
        return found
