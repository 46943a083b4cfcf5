"""ShareFetch: acknowledgements of what a member had, and records that nobody else has, or a wait for some.

Records are read as for Fetch, from where the share partition has something available. The answer holds the
whole batches, and says which of their offsets the member has acquired: it passes over the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.broker.groups.share_group import ShareGroup
from headwater.broker.share.partition import SharePartition
from headwater.broker.share.records import ShareKey
from headwater.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, Slot
from headwater.broker.share.taker import Acquired, Wish
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.cold import NotCached
from headwater.log.errors import PartitionError
from headwater.log.partition import PartitionLog
from headwater.net.kafka.share_acks import NO_ID, Refused, slots_of, take_acks
from headwater.record.batch import Buffer, batches
from headwater.record.committed import committed_batches
from headwater.wire.kafka.frames import RequestHeader
from headwater.wire.kafka.share_fetch import SharePart, encode_share_fetch_response
from headwater.wire.kafka.versions import Api

if TYPE_CHECKING:
    from headwater.net.kafka.connection import KafkaConnection
    from headwater.net.kafka.connection import Slot as Place

logger = logging.getLogger(__name__)

_API = int(Api.SHARE_FETCH)
_EXACT = 1
_PROBES = 4  # as of a Fetch
_TRIES = 10
"""How often a partition is read on where all that was read belongs to aborted transactions."""


class ShareFetch:
    """One ShareFetch request, from its arrival to its answer."""

    __slots__ = (
        "_config",
        "_connection",
        "_gone",
        "_header",
        "_key",
        "_logs",
        "_message",
        "_place",
        "_probes",
        "_wake",
        "_watched",
        "_wish",
        "_wrote",
    )

    def __init__(
        self, connection: KafkaConnection, place: Place, header: RequestHeader, message: Any
    ) -> None:
        self._connection = connection
        self._place = place
        self._header = header
        self._message = message
        self._key = SessionKey(message.group_id or "", message.member_id or "")
        exact = getattr(message, "share_acquire_mode", 0) == _EXACT
        self._wish = Wish(self._key.member, message.max_records, message.batch_size, exact)
        self._config = connection.node.shares.config(self._key.group)
        self._wrote = False
        self._gone = False
        self._probes = _PROBES
        self._wake: asyncio.Event = asyncio.Event()
        self._logs: list[PartitionLog] = []
        self._watched: list[ShareKey] = []

    def abandon(self) -> None:
        """Stop waiting: nobody is there to be answered."""
        self._gone = True
        self._wake.set()

    async def run(self) -> None:
        """Answer the request, at once or after a wait."""
        node = self._connection.node
        code = 0
        parts: dict[Slot, SharePart] = {}
        try:
            parts = await self._answer()
            if self._wrote:
                await node.shares_durable()
        except ApiError as error:
            code = int(error.code)
        except Exception:
            code = int(ErrorCode.unknown_server_error)
            fields = {"peer": self._connection.peer, "client_id": self._header.client_id}
            logger.exception("SHARE_FETCH version %d failed", self._header.version, extra=fields)
        if self._gone:
            return
        throttle_ms = self._throttle(parts) if node.throttle.active else 0
        self._count(code, parts)
        topics: dict[bytes, list[SharePart]] = {}
        for (topic_id, _), part in parts.items():
            topics.setdefault(topic_id.bytes, []).append(part)
        number, lock_ms = self._header.correlation_id, self._config.lock_ms
        pieces = encode_share_fetch_response(number, throttle_ms, code, lock_ms, topics)
        self._connection.reply(self._place, pieces)

    async def _answer(self) -> dict[Slot, SharePart]:
        node, message = self._connection.node, self._message
        SessionKey.of(message)  # here and not before, where the refusal has nobody to answer it
        renews = getattr(message, "is_renew_ack", False)
        if renews and (message.max_wait or message.min_bytes or message.max_bytes or message.max_records):
            raise ApiError(ErrorCode.invalid_request)  # KIP-1222: who renews does not fetch
        session = self._open_session()
        self._wrote, results = take_acks(node, self._key, message.topics, renews=renews)
        parts: dict[Slot, SharePart] = {}
        if session is None:
            node.share_service.end_session(*self._key)
        elif not renews:
            if message.share_session_epoch == INITIAL_EPOCH:
                parts = {slot: SharePart(slot[1]) for slot in session.slots}
            parts |= await self._fetch(session)
        node.share_service.arm()
        return _with_results(parts, results)

    # -- sessions --------------------------------------------------------------------------------

    def _open_session(self) -> ShareSession | None:
        """Return the session to fetch in, or None where the request ends it."""
        message, connection = self._message, self._connection
        sessions = connection.node.shares.sessions
        epoch = message.share_session_epoch
        has_acks = any(part.acknowledgement_batches for topic in message.topics for part in topic.partitions)
        if epoch == FINAL_EPOCH:
            sessions.find(self._key)
            return None
        if epoch == INITIAL_EPOCH:
            if has_acks:
                raise ApiError(ErrorCode.invalid_request)
            connection.shares = True
            return sessions.open(self._key, slots_of(message.topics), connection)
        session = sessions.resume(self._key, epoch)
        session.update(slots_of(message.topics), _forgotten(message.forgotten_topics_data))
        return session

    # -- fetching --------------------------------------------------------------------------------

    async def _fetch(self, session: ShareSession) -> dict[Slot, SharePart]:
        loop = self._connection.node.loop
        wait = self._message.max_wait.total_seconds()
        end = loop.time() + wait
        self._begin(session)
        while not self._gone:
            left = end - loop.time()
            try:
                parts = self._take(session, patient=left > 0)
            except NotCached as missing:
                await self._warm(missing.with_traceback(None))
                continue
            if parts or left <= 0:
                return parts
            await self._wait(session, left)
        return {}

    def _take(self, session: ShareSession, *, patient: bool) -> dict[Slot, SharePart]:
        node = self._connection.node
        memory = self._connection.room()
        room = min(self._message.max_bytes, node.fetch_max_bytes, memory)
        if node.throttle.active:
            names = (node.name_of(topic_id.bytes) or "" for topic_id, _ in session.slots)
            room = min(room, node.throttle.room(self._connection, names))
        if patient and self._message.min_bytes > 1 and self._backlog(session) < self._message.min_bytes:
            return {}
        parts: dict[Slot, SharePart] = {}
        wish = self._wish
        for slot in list(session.slots):
            if wish.max_records <= 0 or memory <= 0 or (parts and room <= 0):
                break
            try:
                part = self._take_from(slot, wish, room, first=not parts)
            except NotCached:
                if not parts:
                    raise
                break  # what was acquired so far must not wait for the disk
            except PartitionError as error:
                part = SharePart(slot[1], int(error.code))
            except ApiError as error:
                part = SharePart(slot[1], int(error.code))
            if part is not None:
                parts[slot] = part
                room -= part.records_length
                got = sum(last - first + 1 for first, last, _ in part.acquired)
                wish = wish._replace(max_records=wish.max_records - got)
                session.served(slot)
        return parts

    def _take_from(self, slot: Slot, wish: Wish, room: int, *, first: bool) -> SharePart | None:
        """Acquire records of one partition; None where it has none."""
        node = self._connection.node
        key = ShareKey(self._key.group, *slot)
        log, partition = self._open(key)
        if not partition.may_acquire(self._config.max_locks):
            return None
        for _ in range(_TRIES):
            offset = partition.next_offset()
            data, aborted = self._read(log, offset, room)
            found = [(header.base_offset, header.last_offset) for _, header in batches(data)]
            if not found or (len(data) > room and not first):
                return None
            acquired = node.shares.acquire(node.share_service.now(), key, wish, offset, found)
            if aborted:
                acquired = without_aborted(partition, data, aborted, acquired)
            if acquired:
                sent = between(data, acquired)
                return SharePart(slot[1], acquired=acquired, records_length=len(sent), records=sent)
            if not aborted:
                return None
        return None

    def _read(
        self, log: PartitionLog, offset: int, room: int
    ) -> tuple[bytes | memoryview, list[tuple[int, int]]]:
        """Return batches from an offset on, and the producers and first offsets of aborted transactions in them."""
        probe = self._probes > 0
        if not self._config.read_committed:
            return (log.read(offset, room, probe=probe), []) if offset < log.high_watermark else (b"", [])
        if offset >= log.last_stable_offset:
            return b"", []
        data, ended = log.read_committed(offset, room, probe=probe)
        return data, [(each.producer_id, each.first_offset) for each in ended]

    def _begin(self, session: ShareSession) -> None:
        """Let the group begin to share what it has not shared before, all of it with one write."""
        node = self._connection.node
        starts: dict[ShareKey, int] = {}
        for slot in session.slots:
            key = ShareKey(self._key.group, *slot)
            log = None if key in node.shares.partitions else self._log(key)
            if log is not None:
                starts[key] = self._beginning(log)
        if starts and isinstance(node.groups.groups.get(self._key.group), ShareGroup):
            changes = node.shares.initialize(node.share_service.now(), starts)
            self._wrote = node.share_service.apply(changes) or self._wrote

    def _beginning(self, log: PartitionLog) -> int:
        """Return where a group begins to read a partition."""
        if self._config.reset == "earliest":
            return log.start_offset
        found = None
        if self._config.reset == "by_duration":
            found = log.offset_for_time(self._connection.node.clock.wall_ms() - self._config.reset_ms)
        return log.high_watermark if found is None else found[0]

    def _log(self, key: ShareKey) -> PartitionLog | None:
        node = self._connection.node
        name = node.name_of(key.topic_id.bytes)
        return node.logs.get(name, key.partition) if name is not None else None

    def _open(self, key: ShareKey) -> tuple[PartitionLog, SharePartition]:
        """Return the log of a share partition, and its state."""
        node = self._connection.node
        log = self._log(key)
        if log is None:
            known = key.topic_id in node.topics.by_id
            raise ApiError(ErrorCode.unknown_topic_or_partition if known else ErrorCode.unknown_topic_id)
        partition = node.shares.partitions.get(key)
        if partition is None:
            raise ApiError(ErrorCode.group_id_not_found)
        partition.begin_at(log.start_offset)
        return log, partition

    # -- waiting ---------------------------------------------------------------------------------

    def _backlog(self, session: ShareSession) -> int:
        """Return about how many bytes the partitions have to give."""
        total = 0
        for slot in session.slots:
            try:
                log, partition = self._open(ShareKey(self._key.group, *slot))
            except ApiError:
                return self._message.min_bytes  # type: ignore[no-any-return]
            total += log.backlog(partition.next_offset())
        return total

    async def _wait(self, session: ShareSession, seconds: float) -> None:
        node = self._connection.node
        self._wake.clear()
        for topic_id, index in session.slots:
            key = ShareKey(self._key.group, topic_id, index)
            node.share_service.watch(key, self, self._wake.set)
            self._watched.append(key)
            log = self._log(key)
            if log is not None:
                log.on_advance[self] = self._wake.set
                self._logs.append(log)
        node.share_service.arm()
        timer = node.loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            for log in self._logs:
                log.on_advance.pop(self, None)
            for key in self._watched:
                node.share_service.unwatch(key, self)
            self._logs, self._watched = [], []

    async def _warm(self, missing: NotCached) -> None:
        self._probes -= 1
        self._wake.clear()
        self._connection.node.cold.read([missing], self._wake.set)
        await self._wake.wait()

    # -- answering -------------------------------------------------------------------------------

    def _throttle(self, parts: dict[Slot, SharePart]) -> int:
        node = self._connection.node
        sizes = [
            (node.name_of(topic_id.bytes) or "", part.records_length) for (topic_id, _), part in parts.items()
        ]
        now_ms = node.clock.monotonic_ms()
        # What was acquired is sent: the member waits afterwards.
        _, wait_ms = node.throttle.consumed(
            self._connection, sum(size for _, size in sizes), sizes, 0, now_ms
        )
        if wait_ms:
            self._connection.mute(wait_ms)
        return wait_ms

    def _count(self, code: int, parts: dict[Slot, SharePart]) -> None:
        counters = self._connection.node.counters
        counters.record_bytes_out += sum(part.records_length for part in parts.values())
        for each in (code, *(part.error_code for part in parts.values())):
            if each:
                counters.errors[_API, each] += 1


def _forgotten(topics: Iterable[Any]) -> list[Slot]:
    return [(topic.topic_id or NO_ID, index) for topic in topics for index in topic.partitions]


def _with_results(parts: dict[Slot, SharePart], results: Refused) -> dict[Slot, SharePart]:
    """Return the parts of an answer with what became of the acknowledgements."""
    for slot, error in results.items():
        part = parts.get(slot, SharePart(slot[1]))
        if error is not None:
            part = part._replace(ack_error_code=int(error.code), ack_error_message=error.message or None)
        parts[slot] = part
    return parts


def between(data: bytes | memoryview, acquired: list[Acquired]) -> bytes | memoryview:
    """Return the batches that hold what was acquired, without those before and after."""
    if not acquired:
        return b""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [
        (position, header.size)
        for position, header in batches(data)
        if header.last_offset >= first and header.base_offset <= last
    ]
    if not wanted:
        return b""
    return memoryview(data)[wanted[0][0] : sum(wanted[-1])]


def without_aborted(
    partition: SharePartition, data: Buffer, aborted: list[tuple[int, int]], acquired: list[Acquired]
) -> list[Acquired]:
    """Archive what was acquired of aborted transactions, and return the rest."""
    committed = {position for position, _ in committed_batches(data, aborted)}
    for position, header in batches(data):
        if position in committed or header.is_control:
            continue
        partition.withhold(header.base_offset, header.last_offset)
        kept: list[Acquired] = []
        for part in acquired:
            if part.first < header.base_offset:
                kept.append(part._replace(last=min(part.last, header.base_offset - 1)))
            if part.last > header.last_offset:
                kept.append(part._replace(first=max(part.first, header.last_offset + 1)))
        acquired = kept
    return acquired
