"""Compaction, as a matter of bytes: which records of a log stay, and the batches that hold them.

A pass has two steps. The first walks the dirty part of the log and learns the newest offset of every key, as
far as the map has room. The second goes over the log from its start to where the first got, and keeps of
each key what is not older than that. What stays keeps its offset, timestamp, key, value and headers, and its
batch keeps its producer, codec and place.

The log stays dense, as recovery relies on it: a batch covers the offsets that were taken out of it, and those
of whole batches that vanished behind it. Where no batch can, an empty one of 61 bytes does.

- **Tombstones** are found to be the newest of their key by one pass, which writes the time from which they
  may vanish into their batch: bit 6 of the attributes says that the base timestamp is that time, as
  in Kafka. A later pass takes them out.
- **Records of aborted transactions** are taken out. A marker stays for as long as a batch of its transaction
  is there, and then as long as a tombstone would.
- **The last batch of each producer** stays, if only as an empty one: it tells the sequence after a crash.

The walk of the records decides how fast all of this is, so it is written out in one place for each step,
with the one-byte and two-byte numbers inline that nearly all records consist of.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from headwater.log.transactions import Aborted, decode_marker
from headwater.record.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    CorruptBatch,
    Header,
    checksum,
    write_header,
)
from headwater.record.codecs import Codec, compress, decompress
from headwater.record.records import MAX_DECOMPRESSED, decode_varint, encode_varint

DELETE_HORIZON = 0x40
"""The attribute that makes a batch's base timestamp the time from which its tombstones may vanish."""
MAX_SPAN = 2**31 - 1
"""The most offsets that one batch covers."""
ENTRY_BYTES = 256
"""What a key costs in the map at most: two objects, and a table that is half empty while it grows."""
_RAW_KEY = 31
_DIGEST = 32  # longer than any key that stands for itself, so the two cannot be mistaken for each other

Slice = tuple[int, int]


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST).digest()


def learn_keys(latest: dict[bytes, int], data: bytes, start: int, end: int, base_offset: int) -> None:
    """Note, for every key in the records at `data[start:end]`, the offset where it was seen last."""
    at = start
    while at < end:
        number = data[at]
        if number < 0x80:
            at += 1
            following = at + (number >> 1)
        else:
            more = data[at + 1]
            if more < 0x80:
                at += 2
                following = at + (((number & 0x7F) | more << 7) >> 1)
            else:
                length, at = decode_varint(data, at)
                following = at + length
        at += 1
        while data[at] > 0x7F:
            at += 1
        number = data[at + 1]
        if number < 0x80:
            offset = base_offset + (number >> 1)
            at += 2
        else:
            more = data[at + 2]
            if more < 0x80:
                offset = base_offset + (((number & 0x7F) | more << 7) >> 1)
                at += 3
            else:
                delta, at = decode_varint(data, at + 1)
                offset = base_offset + delta
        number = data[at]
        if number < 0x40 and not number & 1:
            at += 1
            latest[data[at : at + (number >> 1)]] = offset
        elif number != 1:
            length, at = decode_varint(data, at)
            key = data[at : at + length]
            latest[key if length <= _RAW_KEY else _digest(key)] = offset
        at = following
    if at != end:
        raise CorruptBatch(f"the records at offset {base_offset} do not end with their batch")


class Sifted(NamedTuple):
    """The records of a batch that stay."""

    slices: list[Slice]
    """Where they are, neighbours as one."""
    kept: int
    tombstones: bool


def sift(
    latest: dict[bytes, int], data: bytes, start: int, end: int, base_offset: int, *, drop_tombstones: bool
) -> Sifted:
    """Return which records at `data[start:end]` stay: those that have a key and are the newest of it."""
    slices: list[Slice] = []
    open_from = -1
    count = 0
    tombstones = False
    newest = latest.get
    at = start
    while at < end:
        begin = at
        number = data[at]
        if number < 0x80:
            at += 1
            following = at + (number >> 1)
        else:
            more = data[at + 1]
            if more < 0x80:
                at += 2
                following = at + (((number & 0x7F) | more << 7) >> 1)
            else:
                length, at = decode_varint(data, at)
                following = at + length
        at += 1
        while data[at] > 0x7F:
            at += 1
        number = data[at + 1]
        if number < 0x80:
            offset = base_offset + (number >> 1)
            at += 2
        else:
            more = data[at + 2]
            if more < 0x80:
                offset = base_offset + (((number & 0x7F) | more << 7) >> 1)
                at += 3
            else:
                delta, at = decode_varint(data, at + 1)
                offset = base_offset + delta
        number = data[at]
        if number < 0x40 and not number & 1:
            at += 1
            key_end = at + (number >> 1)
            keep = newest(data[at:key_end], -1) <= offset
        elif number != 1:
            length, at = decode_varint(data, at)
            key_end = at + length
            key = data[at:key_end]
            keep = newest(key if length <= _RAW_KEY else _digest(key), -1) <= offset
        else:
            keep, key_end = False, at
        if keep and data[key_end] == 1:
            if drop_tombstones:
                keep = False
            else:
                tombstones = True
        if keep:
            count += 1
            if open_from < 0:
                open_from = begin
        elif open_from >= 0:
            slices.append((open_from, begin))
            open_from = -1
        at = following
    if at != end:
        raise CorruptBatch(f"the records at offset {base_offset} do not end with their batch")
    if open_from >= 0:
        slices.append((open_from, end))
    return Sifted(slices, count, tombstones)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a pass goes by."""

    dirty_from: int
    """Before this offset each key is there once."""
    now_ms: int
    delete_retention_ms: int
    map_entries: int
    aborted: tuple[Aborted, ...] = ()
    last_batches: frozenset[int] = frozenset()
    """The base offsets of the last batch of each producer."""


@dataclass(slots=True)
class Outcome:
    """What a pass did."""

    records_read: int = 0
    records_kept: int = 0
    horizon_ms: int | None = None
    """When the next tombstone or marker may vanish."""
    dropped_markers: list[int] = field(default_factory=list)


class Batch(NamedTuple):
    """A batch that stays: its header, without checksum and length, and its records as they are written."""

    header: Header
    payload: Buffer
    fixed: bool
    """Whether it must not be made to cover more offsets."""


class Pass:
    """One pass over a log: `learn` from the dirty batches, then `clean` all of them, in order."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.outcome = Outcome()
        self.mapped_to = terms.dirty_from
        self._latest: dict[bytes, int] = {}
        self._survivors: array[int] | None = None
        self._aborted: dict[int, list[Aborted]] = {}
        for ended in terms.aborted:
            self._aborted.setdefault(ended.producer_id, []).append(ended)
        self._seen: set[int] = set()

    @property
    def full(self) -> bool:
        """Whether the map has no room for another batch."""
        return len(self._latest) >= self.terms.map_entries

    def learn(self, data: bytes, start: int, header: Header) -> None:
        """Take note of the keys of a batch at or after the dirty offset."""
        if header.record_count and not header.is_control and not self._is_aborted(header):
            body, begin, end = _records(data, start, header)
            try:
                learn_keys(self._latest, body, begin, end, header.base_offset)
            except IndexError:
                raise _unreadable(header) from None
        self.mapped_to = header.last_offset + 1

    def clean(self, data: bytes, start: int, header: Header) -> Batch | None:
        """Return what is left of a batch, or None when that is nothing."""
        self.outcome.records_read += header.record_count
        if header.is_control:
            batch = self._clean_marker(data, start, header)
        else:
            if header.is_transactional:
                self._seen.add(header.producer_id)
            batch = self._clean_records(data, start, header)
        if batch is None and header.base_offset in self.terms.last_batches:
            batch = Batch(_emptied(header), b"", fixed=True)
        if batch is not None:
            self.outcome.records_kept += batch.header.record_count
        return batch

    # -- records -----------------------------------------------------------------------------------

    def _clean_records(self, data: bytes, start: int, header: Header) -> Batch | None:
        if header.base_offset >= self.mapped_to:
            return self._as_it_is(data, start, header)
        if not header.record_count or self._is_aborted(header) or not self._may_survive(header):
            return None
        body, begin, end = _records(data, start, header)
        horizon = _horizon(header)
        past = horizon is not None and horizon <= self.terms.now_ms
        try:
            sifted = sift(self._latest, body, begin, end, header.base_offset, drop_tombstones=past)
        except IndexError:
            raise _unreadable(header) from None
        if not sifted.kept:
            return None
        self._expect(horizon if sifted.tombstones else None)
        if sifted.tombstones and horizon is None:
            return self._built(body, sifted.slices, sifted.kept, header, self._new_horizon())
        if sifted.kept == header.record_count:
            return self._as_it_is(data, start, header)
        return self._built(body, sifted.slices, sifted.kept, header, None)

    def _may_survive(self, header: Header) -> bool:
        """Whether a batch of the dirty part has any newest record, told without opening it."""
        if header.base_offset < self.terms.dirty_from:
            return True
        if self._survivors is None:
            self._survivors = array("q", sorted(self._latest.values()))
        survivors = self._survivors
        first = bisect_left(survivors, header.base_offset)
        return bisect_right(survivors, header.last_offset, first) > first

    def _as_it_is(self, data: bytes, start: int, header: Header) -> Batch:
        payload = memoryview(data)[start + HEADER_SIZE : start + header.size]
        return Batch(header, payload, header.base_offset in self.terms.last_batches or header.is_control)

    def _built(
        self, body: bytes, slices: list[Slice], count: int, header: Header, horizon: int | None
    ) -> Batch:
        attributes, base_timestamp = header.attributes, header.base_timestamp
        max_timestamp = header.max_timestamp
        own_times = not attributes & LOG_APPEND_TIME
        if own_times:
            max_timestamp = base_timestamp + _largest_delta(body, slices)
        if horizon is None:
            kept = b"".join([body[begin:end] for begin, end in slices])
        else:
            attributes |= DELETE_HORIZON
            kept = _rebased(body, slices, base_timestamp - horizon if own_times else 0)
            base_timestamp = horizon
        codec = Codec.of(attributes & CODEC_MASK)
        fixed = header.base_offset in self.terms.last_batches or header.is_control
        return Batch(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                record_count=count,
            ),
            compress(codec, kept) if codec is not Codec.NONE else kept,
            fixed,
        )

    # -- transactions ------------------------------------------------------------------------------

    def _is_aborted(self, header: Header) -> bool:
        return header.is_transactional and any(
            ended.first_offset <= header.base_offset <= ended.last_offset
            for ended in self._aborted.get(header.producer_id, ())
        )

    def _clean_marker(self, data: bytes, start: int, header: Header) -> Batch | None:
        if not header.record_count:
            return None
        marker = decode_marker(memoryview(data)[start : start + header.size])
        has_records = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        if marker is None or header.base_offset >= self.mapped_to:
            return self._as_it_is(data, start, header)
        if has_records:
            if not marker.commit:
                # This pass takes the last of its records out: another one has to see to the marker.
                self._expect(self.terms.now_ms + self.terms.delete_retention_ms)
            return self._as_it_is(data, start, header)
        horizon = _horizon(header)
        if horizon is not None and horizon <= self.terms.now_ms:
            self.outcome.dropped_markers.append(header.base_offset)
            return None
        if horizon is not None:
            self._expect(horizon)
            return self._as_it_is(data, start, header)
        body, begin, end = _records(data, start, header)
        return self._built(body, [(begin, end)], header.record_count, header, self._new_horizon())

    def _new_horizon(self) -> int:
        horizon = self.terms.now_ms + self.terms.delete_retention_ms
        self._expect(horizon)
        return horizon

    def _expect(self, horizon: int | None) -> None:
        if horizon is not None:
            known = self.outcome.horizon_ms
            self.outcome.horizon_ms = horizon if known is None else min(known, horizon)


def encode(batch: Batch, last_offset: int) -> tuple[bytearray, Header]:
    """Return the bytes and the header of a batch that covers the offsets up to and including `last_offset`."""
    out = bytearray(HEADER_SIZE)
    out += batch.payload
    header = batch.header._replace(
        length=len(out) - LENGTH_END, last_offset_delta=last_offset - batch.header.base_offset
    )
    write_header(out, 0, header)
    header = header._replace(crc=checksum(out, 0, len(out)))
    write_header(out, 0, header)
    return out, header


def empty(first_offset: int) -> Batch:
    """Return a batch without records, to cover offsets that nothing is left of."""
    header = Header(
        base_offset=first_offset,
        length=0,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return Batch(header, b"", fixed=False)


def dense(
    batches: Iterable[Batch], first_offset: int, next_offset: Callable[[], int]
) -> Iterable[tuple[Batch, int]]:
    """Yield batches with the last offset that each is to cover, so that no offset is left out.

    `next_offset` is asked when there are no more batches: where do they end?
    """
    pending, reached = None, first_offset
    for batch in batches:
        begin = batch.header.base_offset
        if begin > reached:
            yield from _bridge(pending, reached, begin)
        elif pending is not None:
            yield pending, reached - 1
        pending, reached = batch, batch.header.last_offset + 1
    if (until := next_offset()) > reached:
        yield from _bridge(pending, reached, until)
    elif pending is not None:
        yield pending, reached - 1


def _bridge(pending: Batch | None, reached: int, until: int) -> Iterable[tuple[Batch, int]]:
    if pending is not None:
        if not pending.fixed and until - pending.header.base_offset <= MAX_SPAN:
            yield pending, until - 1
            return
        yield pending, reached - 1
    while reached < until:
        following = min(until, reached + MAX_SPAN)
        yield empty(reached), following - 1
        reached = following


def _records(data: bytes, start: int, header: Header) -> tuple[bytes, int, int]:
    """Return the bytes that hold a batch's records, and where in them they begin and end."""
    codec = Codec.of(header.attributes & CODEC_MASK)
    if codec is Codec.NONE:
        return data, start + HEADER_SIZE, start + header.size
    payload = memoryview(data)[start + HEADER_SIZE : start + header.size]
    body = decompress(codec, payload, MAX_DECOMPRESSED)
    return body, 0, len(body)


def _horizon(header: Header) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _emptied(header: Header) -> Header:
    return header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        record_count=0,
    )


def _each(body: bytes, slices: list[Slice]) -> Iterable[tuple[int, int]]:
    """Yield where each record's length ends, and where the record does."""
    for begin, end in slices:
        at = begin
        while at < end:
            length, at = decode_varint(body, at)
            yield at, at + length
            at += length


def _largest_delta(body: bytes, slices: list[Slice]) -> int:
    return max(decode_varint(body, at + 1)[0] for at, _ in _each(body, slices))


def _rebased(body: bytes, slices: list[Slice], shift: int) -> bytes:
    """Return records whose timestamps are relative to a base that is earlier by `shift`."""
    out = bytearray()
    for at, end in _each(body, slices):
        delta, rest = decode_varint(body, at + 1)
        record = bytearray(body[at : at + 1])
        encode_varint(record, delta + shift)
        record += body[rest:end]
        encode_varint(out, len(record))
        out += record
    return bytes(out)


def _unreadable(header: Header) -> CorruptBatch:
    return CorruptBatch(f"the records at offset {header.base_offset} do not read")
