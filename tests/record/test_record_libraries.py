"""Our batches read by the client libraries' own decoders, and theirs by ours."""

from __future__ import annotations

import warnings
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest

from headwater.record.batch import check, check_produced
from headwater.record.codecs import Codec
from headwater.record.records import Record, decode_batch, encode_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by an old function
    import kafka.record.default_records as kafka_python_records

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("none", None), ("é", b""))),
    Record(1, 1_700_000_000_500, None, b"x" * 70_000),
    Record(2, 1_699_999_999_000, b"", None),
    Record(3, 1_700_000_000_001, b"k" * 300, b"", (("h", b"2"),)),
    *(Record(i, 1_700_000_000_000 + i, b"%d" % i, b"row %d " % i * 20) for i in range(4, 200)),
]

# kafka-python is installed without the libraries for its other codecs.
CASES = [(aiokafka_records, codec) for codec in Codec] + [
    (kafka_python_records, codec) for codec in (Codec.NONE, Codec.GZIP)
]
pytestmark = pytest.mark.parametrize(
    ("library", "codec"),
    CASES,
    ids=[f"{library.__name__.split('.')[0]}-{codec.name}" for library, codec in CASES],
)


def test_their_batches_read_as_ours(library: Any, codec: Codec) -> None:
    builder = library.DefaultRecordBatchBuilder(2, codec.value, 0, 12, 3, 45, 10_000_000)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = check(batch, 0, len(batch))
    check_produced(header)
    assert Codec.of(header.attributes & 7) is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 45)
    assert header.max_timestamp == max(record.timestamp for record in RECORDS)
    assert list(decode_batch(batch)) == RECORDS


def test_our_batches_read_as_theirs(library: Any, codec: Codec) -> None:
    batch = bytes(
        encode_batch(RECORDS, base_offset=1000, codec=codec, producer_id=9, producer_epoch=1, base_sequence=0)
    )
    theirs = library.DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset, theirs.producer_id) == (1000, 1000 + len(RECORDS), 9)
    read = [
        Record(
            r.offset - 1000, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers)
        )
        for r in theirs
    ]
    assert read == RECORDS
