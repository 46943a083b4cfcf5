"""Which records a batch is refused for, as Kafka tells in `record_errors` from Produce version 8 on.

Batches are checked by their headers, those of compacted topics for keys as well. Only one that is refused is read
record by record, to say which of them are at fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.core.errors import ErrorCode
from headwater.log.config import LogConfig
from headwater.record.batch import NO_TIMESTAMP, CorruptBatch
from headwater.record.records import Record
from headwater.wire.kafka.produce import Refusal

__all__ = ["MOST_TOLD", "refused_records"]

MOST_TOLD: Final = 1000
"""How many records are named: a producer mends its code, not each of them, and an answer stays small."""
_SHOWN: Final = 3


def refused_records(
    records: Iterable[Record], place: str, config: LogConfig, now_ms: int
) -> tuple[ErrorCode, Refusal] | None:
    """Return a refused batch's code and the records at fault, or None where none of them is or they do not read."""
    code, count = ErrorCode.invalid_record, 0
    told: list[tuple[int, str]] = []
    earliest_ms, latest_ms = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    try:
        for index, record in enumerate(records):
            if config.compacted and record.key is None:
                problem = f"Compacted topic cannot accept message without key in topic partition {place}"
            elif _fits(record.timestamp, earliest_ms, latest_ms) or config.log_append_time:
                continue
            else:
                code = ErrorCode.invalid_timestamp
                problem = (
                    f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
                    f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
                )
            count += 1
            if count <= MOST_TOLD:
                told.append((index, problem))
    except CorruptBatch:
        return None
    if not told:
        return None
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{problem}')" for index, problem in told[:_SHOWN]
    )
    why = (
        "invalid timestamp"
        if code is ErrorCode.invalid_timestamp
        else f"{count} record errors in total, and only showing the first three errors at most: [{shown}]"
    )
    return code, Refusal(f"One or more records have been rejected due to {why}", tuple(told))


def _fits(timestamp: int, earliest_ms: int, latest_ms: int) -> bool:
    return timestamp == NO_TIMESTAMP or earliest_ms <= timestamp <= latest_ms
