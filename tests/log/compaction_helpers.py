"""What the tests of compaction share: a cleaner in this process, and readers as clients are."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.log import cleanable
from headwater.log.cleanable import Cleaned
from headwater.log.cleaner import Cleaning, Done, Job, Unit
from headwater.log.partition import PartitionLog
from headwater.log.transactions import decode_marker
from headwater.record.batch import NO_PRODUCER, TRANSACTIONAL, batches, check, read_header
from headwater.record.codecs import Codec
from headwater.record.records import Record, decode_batch, encode_batch


def put(log: PartitionLog, unit: Unit, until: int) -> None:
    """Exchange a unit as the broker does."""
    if unit.dropped_markers:
        log.rest_on(until, unit.dropped_markers)
    unit.swap.save(log.disk, log.directory)
    log.exchange(unit.swap)
    unit.swap.settle(log.disk, log.directory)


def job(log: PartitionLog, cleaned: Cleaned, now_ms: int, map_entries: int = 1_000_000) -> Job | None:
    """Return the job that cleans what can be cleaned."""
    found = cleanable.look_at(log, cleaned, now_ms)
    if not found.segments:
        return None
    return cleanable.job_for(log, found, now_ms=now_ms, map_entries=map_entries)


def compact(
    log: PartitionLog, cleaned: Cleaned, now_ms: int, *, map_entries: int = 1_000_000
) -> tuple[Cleaned, list[Unit]]:
    """Run one pass over a log."""
    work = job(log, cleaned, now_ms, map_entries)
    if work is None:
        return cleaned, []
    until = work.segments[-1].next_offset
    log.rest_on(until, ())
    units = []
    # Through JSON, as it goes to the process.
    for step in Cleaning(Job.from_json(work.to_json()), log.disk).run():
        if isinstance(step, Done):
            cleaned = Cleaned(step.cleaned_to, step.horizon_ms)
            cleaned.save(log.disk, log.directory)
        else:
            put(log, step, until)
            units.append(step)
    return cleaned, units


def walk(log: PartitionLog, max_bytes: int = 1_000) -> Iterator[Record]:
    """Yield every record that a reader of uncommitted records sees, with the batches checked."""
    offset = log.start_offset
    while offset < log.high_watermark:
        data = bytes(log.read(offset, max_bytes))
        before = offset
        for position, header in batches(data):
            check(data, position, position + header.size)
            assert header.base_offset <= offset, "no offset is left out"
            if not header.is_control:
                yield from (r for r in decode_batch(data, position) if r.offset >= log.start_offset)
            offset = header.last_offset + 1
        assert offset > before, "a reader gets on"


def committed(log: PartitionLog, max_bytes: int = 1_000) -> dict[int, Record]:
    """Return what a consumer of committed records sees, working as Kafka's does."""
    seen: dict[int, Record] = {}
    offset = log.start_offset
    while offset < log.last_stable_offset:
        data, aborted = log.read_committed(offset, max_bytes)
        pending = sorted(aborted, key=lambda ended: ended.first_offset)
        skipped: set[int] = set()
        for position, header in batches(data):
            while pending and pending[0].first_offset <= header.last_offset:
                skipped.add(pending.pop(0).producer_id)
            if header.is_control:
                if header.record_count:
                    marker = decode_marker(bytes(data)[position : position + header.size])
                    if marker is not None and not marker.commit:
                        skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                for record in decode_batch(data, position):
                    if record.offset >= offset:
                        seen[record.offset] = record
            offset = header.last_offset + 1
        if not data:
            break
    return seen


def newest(records: dict[int, Record]) -> dict[bytes, Record]:
    """Return the last record of every key."""
    return {r.key: r for _, r in sorted(records.items()) if r.key is not None}


def alive(records: dict[int, Record]) -> dict[bytes, Record]:
    """Return the last record of every key that is not deleted."""
    return {key: record for key, record in newest(records).items() if record.value is not None}


def write(
    log: PartitionLog,
    pairs: list[tuple[bytes | None, bytes | None]],
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    sequence: int = -1,
    transactional: bool = False,
) -> int:
    """Append one batch of keys and values."""
    rows = [Record(i, now_ms + i, key, value, (("h", b"1"),)) for i, (key, value) in enumerate(pairs)]
    batch = encode_batch(
        rows,
        codec=codec,
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    return log.append(memoryview(batch), read_header(batch), now_ms)
