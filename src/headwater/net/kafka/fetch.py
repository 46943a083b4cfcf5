"""Fetch: batches straight from the segment files, or a wait until there are enough.

Records are read from the page cache into memory and written to the socket from there. `sendfile` was
measured and costs more: see docs/decisions/0003-read-instead-of-sendfile.md.

Records that are not in the page cache are brought there by another thread first (`log.cold`), so that a
consumer of old segments makes nobody but itself wait for the disk.

A fetch that finds fewer than `min_bytes` waits: it leaves a call with each of its partitions, made when
a high watermark moves, and looks again then, or when `max_wait_ms` has passed.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from headwater.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, Session, Watched
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.cold import NotCached
from headwater.log.errors import OffsetOutOfRange, PartitionError
from headwater.log.partition import PartitionLog
from headwater.wire.kafka.fetch import FetchPartition, FetchRequest, encode_fetch_response
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.versions import Api

if TYPE_CHECKING:
    from headwater.net.kafka.connection import KafkaConnection, Slot

_TOPIC_IDS = 13
_READ_COMMITTED = 1
_FETCH = int(Api.FETCH)
_NONE = int(ErrorCode.none)
# A segment's index, its records, and both once more should they have been evicted meanwhile.
_PROBES = 4


class Fetch:
    """One Fetch request, from its arrival to its answer."""

    __slots__ = (
        "_began",
        "_connection",
        "_full",
        "_gone",
        "_header",
        "_logs",
        "_partitions",
        "_probes",
        "_request",
        "_session",
        "_slot",
        "_timer",
        "_woken",
    )

    def __init__(
        self, connection: KafkaConnection, slot: Slot, header: RequestHeader, request: FetchRequest
    ) -> None:
        self._began = perf_counter()
        self._connection = connection
        self._slot = slot
        self._header = header
        self._request = request
        self._session: Session | None = None
        self._full = True
        self._partitions: list[Watched] = []
        self._logs: list[PartitionLog] = []
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False
        self._probes = _PROBES
        self._gone = False

    def start(self) -> None:
        """Answer at once where there is enough to say, or wait."""
        try:
            self._open_session()
        except ApiError as error:
            self._send(int(error.code), 0, [])
            return
        if not self._answer(patient=self._request.max_wait_ms > 0):
            self._wait()

    def abandon(self) -> None:
        """Stop waiting: nobody is there to be answered."""
        self._gone = True
        self._unwatch()

    # -- sessions --------------------------------------------------------------------------------

    def _open_session(self) -> None:
        request = self._request
        sessions = self._connection.node.fetch_sessions
        uses_ids = self._header.version >= _TOPIC_IDS
        wanted = [
            Watched(
                target.topic,
                target.partition,
                target.fetch_offset,
                target.max_bytes,
                target.current_leader_epoch,
            )
            for target in request.targets
        ]
        epoch = request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            if epoch == INITIAL_EPOCH:
                self._session = sessions.open(wanted, uses_ids=uses_ids)
            self._partitions = wanted
            return
        self._session = sessions.resume(request.session_id, epoch, uses_ids=uses_ids)
        self._session.update(wanted, request.forgotten)
        self._partitions = list(self._session)
        self._full = False

    # -- answering -------------------------------------------------------------------------------

    def _answer(self, *, patient: bool) -> bool:
        """Answer with what there is; a patient one declines, and returns False, when that is too little."""
        request = self._request
        began = perf_counter()
        node = self._connection.node
        memory = self._connection.room()
        room = min(request.max_bytes, node.fetch_max_bytes, memory)
        if node.throttle.active:
            room = min(room, node.throttle.room(self._connection, map(self._name, self._partitions)))
        found: list[tuple[Watched, FetchPartition]] = []
        cold: list[NotCached] = []
        size = 0
        failed = False
        for watched in self._partitions:
            try:
                partition = self._read(watched, room - size, first=size == 0 and memory > 0)
            except NotCached as missing:
                # With its traceback it would keep this frame, and what was read of other partitions, in a cycle.
                cold.append(missing.with_traceback(None))
                continue
            size += partition.records_length
            failed = failed or partition.error_code != _NONE
            found.append((watched, partition))
        if cold:
            self._warm(cold, patient=patient)
            return True
        if patient and not failed and size < request.min_bytes and self._partitions:
            return False
        throttle_ms = 0
        if node.throttle.active:
            sizes = [(self._name(watched), partition.records_length) for watched, partition in found]
            seconds, now_ms = perf_counter() - began, node.clock.monotonic_ms()
            granted, throttle_ms = node.throttle.consumed(self._connection, size, sizes, seconds, now_ms)
            if throttle_ms:
                self._connection.mute(throttle_ms)
            if not granted:
                self._send_nothing(throttle_ms)
                return True
        counters = node.counters
        counters.record_bytes_out += size
        topics: dict[str | bytes, list[FetchPartition]] = {}
        for watched, partition in found:
            if partition.error_code != _NONE:
                counters.errors[_FETCH, partition.error_code] += 1
            news = watched.has_news(partition.high_watermark, partition.log_start_offset)
            if self._full or news or partition.records_length or partition.error_code != _NONE:
                topics.setdefault(watched.topic, []).append(partition)
            if self._session is not None and partition.records_length:
                self._session.served(watched.key)
        self._send(_NONE, self._session.id if self._session else 0, list(topics.items()), throttle_ms)
        return True

    def _warm(self, missing: list[NotCached], *, patient: bool) -> None:
        self._unwatch()
        self._probes -= 1

        def again() -> None:
            if not self._gone and not self._answer(patient=patient):
                self._wait()

        self._connection.node.cold.read(missing, again)

    def _send_nothing(self, throttle_ms: int) -> None:
        # A full answer without partitions is how a client knows that it was throttled: its session is not begun.
        if self._full and self._session is not None:
            self._connection.node.fetch_sessions.close(self._session.id)
            self._session = None
        self._send(_NONE, self._session.id if self._session else 0, [], throttle_ms)

    def _name(self, watched: Watched) -> str:
        topic = watched.topic
        return (self._connection.node.name_of(topic) or "") if isinstance(topic, bytes) else topic

    def _read(self, watched: Watched, room: int, *, first: bool) -> FetchPartition:
        node = self._connection.node
        topic = watched.topic
        name = node.name_of(topic) if isinstance(topic, bytes) else topic
        log = node.logs.get(name, watched.partition) if name is not None else None
        if log is None:
            code = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
            return FetchPartition(watched.partition, int(code), -1, -1, -1)
        if watched.leader_epoch > log.leader_epoch:
            return FetchPartition(watched.partition, int(ErrorCode.unknown_leader_epoch), -1, -1, -1)
        committed = self._request.isolation_level == _READ_COMMITTED
        data: bytes | memoryview = b""
        aborted: list[tuple[int, int]] = []
        try:
            if room <= 0 and not first:
                pass
            elif committed:
                data, ended = log.read_committed(
                    watched.offset, min(room, watched.max_bytes), probe=self._probes > 0
                )
                aborted = [(each.producer_id, each.first_offset) for each in ended]
            else:
                data = log.read(watched.offset, min(room, watched.max_bytes), probe=self._probes > 0)
        except OffsetOutOfRange as error:
            return FetchPartition(watched.partition, int(error.code), -1, -1, -1)
        except PartitionError as error:
            return FetchPartition(
                watched.partition, int(error.code), log.high_watermark, -1, log.start_offset
            )
        if len(data) > room and not first:
            data = b""
        return FetchPartition(
            watched.partition,
            _NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            aborted if committed else None,
            -1,
            len(data),
            data,
        )

    def _send(
        self,
        error_code: int,
        session_id: int,
        topics: list[tuple[str | bytes, list[FetchPartition]]],
        throttle_ms: int = 0,
    ) -> None:
        self._unwatch()
        header = self._header
        pieces = encode_fetch_response(
            header.version, header.correlation_id, throttle_ms, error_code, session_id, topics
        )
        self._connection.reply(self._slot, pieces)
        counters = self._connection.node.counters
        counters.fetch_seconds.observe(perf_counter() - self._began)
        if error_code != _NONE:
            counters.errors[_FETCH, error_code] += 1

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        node = self._connection.node
        for watched in self._partitions:
            name = node.name_of(watched.topic) if isinstance(watched.topic, bytes) else watched.topic
            log = node.logs.get(name, watched.partition) if name is not None else None
            if log is not None:
                log.on_advance[self] = self._wake
                self._logs.append(log)
        self._timer = node.loop.call_later(self._request.max_wait_ms / 1000, self._expire)

    def _wake(self) -> None:
        # Several partitions of one commit wake the same fetch: it looks once, after all of them.
        if not self._woken:
            self._woken = True
            self._connection.node.loop.call_soon(self._look)

    def _look(self) -> None:
        self._woken = False
        if self._timer is None:
            return
        enough = self._request.min_bytes
        if enough <= 1 or self._backlog() >= enough:
            self._answer(patient=True)

    def _backlog(self) -> int:
        logs = {(log.topic, log.partition): log for log in self._logs}
        node = self._connection.node
        total = 0
        for watched in self._partitions:
            name = node.name_of(watched.topic) if isinstance(watched.topic, bytes) else watched.topic
            log = logs.get((name or "", watched.partition))
            if log is None or log.error is not None:
                return self._request.min_bytes
            total += log.backlog(watched.offset)
        return total

    def _expire(self) -> None:
        self._answer(patient=False)

    def _unwatch(self) -> None:
        for log in self._logs:
            log.on_advance.pop(self, None)
        self._logs = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
