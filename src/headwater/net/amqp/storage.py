"""The logs behind queues: one for each lane that has something on disk.

    DATA/queues/ID/PRIORITY/      a durable queue's messages
    DATA/queues/transient/…       what transient queues have no memory for; removed on start

A log is opened with the first message that goes there, and on start where there is one: thousands of queues
with nothing in them cost nothing. Messages that come in one turn of the event loop are written as one
batch. A log's segments go when all that is in them is settled.

The log and the positions are synced at different times, so a power loss may leave a log that ends before
offsets that are settled. Those are given again, so on opening they are unsettled, durably, before anything is
written there; the same after a write that failed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.core.errors import ApiError, HeadwaterError
from headwater.log.config import LogConfig
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.log.recovery import open_partition
from headwater.net.amqp.lane_log import Expiry, LaneLog, TransientLog
from headwater.net.amqp.positions import Place, Positions

if TYPE_CHECKING:
    from headwater.net.node import Node

__all__ = ["LaneLog", "QueueStorage", "Writer"]

logger = logging.getLogger(__name__)

POSITIONS = "__queue_positions"
_LARGEST = 144 * 1024 * 1024
_CONFIG = LogConfig(
    segment_bytes=_LARGEST, max_message_bytes=_LARGEST, segment_ms=2**62, index_interval_bytes=65536,
    timestamp_after_max_ms=2**62,
)  # fmt: skip
_KEY_SIZE = 17
_TRANSIENT = "transient"
_DELETED, _ORPHAN = ".deleted", ".orphan"


class Writer(Protocol):
    """What gathers in a turn, to be written at its end."""

    log: PartitionLog

    def flush(self, now_ms: int) -> None:
        """Write it; raises `PartitionError` or `ApiError` where the disk takes nothing."""


class QueueStorage:
    """The logs of all lanes of a node."""

    def __init__(self, node: Node, root: Path) -> None:
        self.node = node
        self.touched: list[Writer] = []
        """The logs that something was appended to since the last flush."""
        self.lanes: dict[bytes, LaneLog] = {}
        self.positions = Positions(
            node.logs.open_state(POSITIONS, node.clock.wall_ms()), node.clock, lambda log: None
        )
        self.broken: dict[bytes, str] = {}
        """The queues of which a log could not be opened, and why."""
        self.failure: str | None = None
        """Why something was not written that was tried before the turn's end, until `take_failure`."""
        self._root = root
        self._names: set[str] = set()
        """What was there on start."""
        self._transient = 0
        self._opened = False

    def load(self) -> None:
        """Read what was settled, and look what there is."""
        self.positions.load()
        disk = self.node.logs.disk
        disk.make_directory(self._root)
        disk.sync_directory(self._root.parent)
        self._names = {path.name for path in self._root.iterdir()}
        if _TRANSIENT in self._names:
            number = len(self._names)
            while f"{_TRANSIENT}-{number}{_DELETED}" in self._names:
                number += 1
            disk.rename(self._root / _TRANSIENT, self._root / f"{_TRANSIENT}-{number}{_DELETED}")

    def find(self, queue: QueueDefinition, priority: int, expiry: Expiry) -> LaneLog | None:
        """Open the log of a durable queue's lane, if there is one."""
        name = queue.id.hex()
        if name not in self._names:
            if name + _DELETED not in self._names:
                return None
            # The crash took the queue's deletion back.
            self.node.logs.disk.rename(self._root / (name + _DELETED), self._root / name)
            self._names.add(name)
        directory = self._root / name / str(priority)
        if not directory.exists():
            return None
        try:
            return self.open(queue, priority, expiry)
        except (OSError, ValueError, HeadwaterError) as error:
            self.broken[queue.id] = f"{directory} does not open: {error}"
            logger.error("%s takes and gives no messages: %s", queue, self.broken[queue.id])
            return None

    def open(self, queue: QueueDefinition, priority: int, expiry: Expiry) -> LaneLog:
        """Open the log of a durable queue's lane, recovering what is there."""
        key = queue.id + bytes((priority,))
        directory = self._root / queue.id.hex() / str(priority)
        log = self._open(directory, str(queue), priority, synced=self.node.logs.synced)
        place = self.positions.place(key)
        self.clip(key, place, log.end_offset)
        lane = self.lanes[key] = LaneLog(self, key, log, place, expiry)
        return lane

    def clip(self, key: bytes, place: Place, end: int) -> None:
        """Unsettle what a log does not hold, durably."""
        try:
            if self.positions.clip(key, place, end):
                self.positions.log.sync()
        except PartitionError as error:
            logger.error("messages that come may be taken for acknowledged after a restart: %s", error)

    def open_transient(self, expiry: Expiry) -> LaneLog:
        """Open a log for what a transient queue has no memory for."""
        self._transient += 1
        if self._transient == 1:
            self.node.logs.disk.make_directory(self._root / _TRANSIENT)
        directory = self._root / _TRANSIENT / str(self._transient)
        log = self._open(directory, "a transient queue", self._transient, synced=False)
        return TransientLog(self, b"", log, Place(), expiry)

    def open_apart(self, name: str) -> PartitionLog:
        """Open a log that belongs to no queue."""
        return self._open(self._root.parent / name, name, 0, synced=self.node.logs.synced)

    def _open(self, directory: Path, name: str, number: int, *, synced: bool) -> PartitionLog:
        logs, now_ms = self.node.logs, self.node.clock.wall_ms()
        log = open_partition(logs.files, directory, name, number, _CONFIG, synced=synced, now_ms=now_ms)
        log.on_drop = logs.on_drop
        if log.recovered and synced and self._opened:
            log.sync()
            log.settled()
        return log

    def settle(self, known: Iterable[bytes]) -> None:
        """After opening: remove what was deleted, set aside what belongs to no queue, sync what a crash left."""
        ids = {queue_id.hex() for queue_id in known}
        for directory in sorted(self._root.iterdir()):
            name = directory.name
            if name.endswith(_DELETED):
                self.sweep(directory)
            elif name not in ids and not name.endswith(_ORPHAN):
                logger.error(
                    "%s belongs to no queue this broker knows: it is kept as %s%s; remove it if it is not missed",
                    directory, name, _ORPHAN,
                )  # fmt: skip
                self.node.logs.disk.rename(directory, directory.with_name(name + _ORPHAN))
        lost = [key for key in self.positions.places if len(key) == _KEY_SIZE and key[:-1].hex() not in ids]
        self.positions.forget(lost)
        recovered = [lane.log for lane in self.lanes.values() if lane.log.recovered]
        if self.node.logs.synced and recovered:
            # One call for all of them, where a sync of each would take a second for a few hundred.
            self.node.logs.disk.sync_all()
            for log in recovered:
                log.settled()
        self._names.clear()
        self._opened = True

    # -- writing ---------------------------------------------------------------------------------

    def write(self, lane: Writer) -> bool:
        """Write what gathered for one log; false where the disk took nothing, which `failure` then tells."""
        try:
            lane.flush(self.node.clock.wall_ms())
        except (PartitionError, ApiError) as error:
            self.failure = str(error)
            logger.error("messages for %s were not written: %s", lane.log.topic, error)
            return False
        return True

    def take_failure(self) -> str | None:
        """Return why something was not written since the last time, or None."""
        failure, self.failure = self.failure, None
        return failure

    # -- deleting --------------------------------------------------------------------------------

    def delete(self, queue_id: bytes, stores: Iterable[LaneLog]) -> None:
        """Forget the logs of a queue that is gone; what is on disk goes once its deletion is there."""
        keys = []
        for store in stores:
            store.log.on_advance.clear()
            store.log.abandon()
            if isinstance(store, TransientLog):
                self.sweep(store.log.directory)
            else:
                keys.append(store.key)
                self.lanes.pop(store.key, None)
        directory = self._root / queue_id.hex()
        doomed = directory.with_name(directory.name + _DELETED)
        stored = directory.exists()
        if stored:
            try:
                self.node.logs.disk.rename(directory, doomed)
            except OSError as error:
                logger.error("%s stays until the next start: %s", directory, error)
        if keys or stored:
            self.node.commit.wait(lambda: self._gone(keys, doomed))

    def _gone(self, keys: list[bytes], doomed: Path) -> None:
        try:
            self.positions.forget(keys)
        except PartitionError as error:
            logger.error("a deleted queue is not forgotten yet: %s", error)
        self.sweep(doomed)

    def sweep(self, directory: Path) -> None:
        """Remove a directory while others work."""
        self.node.loop.run_in_executor(None, lambda: shutil.rmtree(directory, ignore_errors=True))

    def shrink(self) -> None:
        """Delete segments in which everything is settled."""
        moved, self.positions.moved = self.positions.moved, set()
        for key in moved:
            lane = self.lanes.get(key)
            if lane is None:
                continue
            try:
                lane.shrink()
            except PartitionError as error:
                logger.warning("no segment of %s was deleted: %s", lane.log.topic, error)

    def close(self) -> None:
        """Write what was settled and delivered, exactly, and close every log."""
        for lane in self.lanes.values():
            lane.log.on_advance.clear()
            lane.log.close()
        try:
            self.positions.flush()
            for key, lane in self.lanes.items():
                self.positions.places[key].delivered = lane.sent
            self.positions.compact()
        except PartitionError as error:
            logger.error("what was acknowledged last comes back after a restart: %s", error)
