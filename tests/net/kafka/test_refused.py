"""The records that a batch is refused for."""

from __future__ import annotations

from headwater.core.errors import ErrorCode
from headwater.log.config import LogConfig
from headwater.net.kafka.refused import MOST_TOLD, refused_records
from headwater.record.records import Record, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(compacted=True)


def record(key: bytes | None = b"k", timestamp: int = NOW_MS) -> Record:
    return Record(offset=0, timestamp=timestamp, key=key, value=b"v")


def test_records_without_a_key_are_named_for_a_compacted_topic_alone() -> None:
    records = [record(), record(None)]
    found = refused_records(records, "t-0", COMPACTED, NOW_MS)
    assert found is not None
    code, (message, faults) = found
    problem = "Compacted topic cannot accept message without key in topic partition t-0"
    assert (code, faults) == (ErrorCode.invalid_record, ((1, problem),))
    assert "due to 1 record errors in total" in message
    assert refused_records(records, "t-0", LogConfig(), NOW_MS) is None


def test_timestamps_are_named_unless_the_broker_sets_them() -> None:
    records = [
        record(timestamp=-1),
        record(timestamp=NOW_MS + 3_600_000),
        record(timestamp=NOW_MS + 3_600_001),
    ]
    found = refused_records(records, "t-0", LogConfig(), NOW_MS)
    assert found is not None
    assert (found[0], [index for index, _ in found[1].records]) == (ErrorCode.invalid_timestamp, [2])
    assert refused_records(records, "t-0", LogConfig(log_append_time=True), NOW_MS) is None
    early = refused_records([record(timestamp=5)], "t-0", LogConfig(timestamp_before_max_ms=1000), NOW_MS)
    assert early is not None


def test_an_answer_stays_small() -> None:
    found = refused_records([record(None)] * (MOST_TOLD + 5), "t-0", COMPACTED, NOW_MS)
    assert found is not None
    message, faults = found[1]
    assert len(faults) == MOST_TOLD
    assert f"due to {MOST_TOLD + 5} record errors" in message
    assert message.count("RecordError(") == 3


def test_a_batch_that_does_not_read_names_nothing() -> None:
    data = encode_batch([record(None), record(None)])
    data[-1] = 0xFF
    assert refused_records(decode_batch(data), "t-0", COMPACTED, NOW_MS) is None
