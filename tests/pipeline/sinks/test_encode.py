from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.sinks.encode import BatchEncoder, EncodingError, Finished, warm
from headwater.pipeline.sinks.kernel import append, choose_partitions
from headwater.record.batch import HEADER_SIZE, read_header
from headwater.record.codecs import Codec
from headwater.record.partitioner import partition_of
from headwater.record.records import Record, decode_batch

pytestmark = pytest.mark.real  # compiles a kernel

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=6), maybe_bytes), max_size=3)


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    row = st.fixed_dictionaries(
        {
            "key": maybe_bytes,
            "value": maybe_bytes | st.binary(min_size=60, max_size=300),
            "_timestamp": st.none() | st.integers(0, 2**41),
            "_headers": headers,
        }
    )
    return draw(st.lists(row, max_size=40))


def table(rows: list[dict[str, Any]], wide: bool) -> pa.RecordBatch:
    kind = pa.large_binary() if wide else pa.binary()
    listed = [
        None
        if row["_headers"] is None
        else [{"key": name, "value": value} for name, value in row["_headers"]]
        for row in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row["key"] for row in rows], kind),
            "value": pa.array([row["value"] for row in rows], kind),
            "_timestamp": pa.array([row["_timestamp"] for row in rows], pa.timestamp("ms", tz="UTC")),
            "_headers": pa.array(listed, HEADERS),
        }
    )


def decoded(batches: list[Finished]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for batch in batches:
        records = list(decode_batch(batch.data))
        assert len(records) == batch.records == read_header(batch.data).record_count
        assert [record.offset for record in records] == list(range(len(records)))
        found[batch.partition] += records
    return found


@settings(max_examples=examples(200), deadline=None)
@given(
    rows=rows(),
    partitions=st.integers(1, 5),
    codec=st.sampled_from(list(Codec)),
    chunk=st.integers(1, 20),
    skipped=st.integers(0, 3),
    wide=st.booleans(),
)
def test_records_decode_to_the_rows_in_their_order(
    rows: list[dict[str, Any]], partitions: int, codec: Codec, chunk: int, skipped: int, wide: bool
) -> None:
    encoder = BatchEncoder(partitions=partitions, now_ms=NOW, max_bytes=500, codec=codec, sticky=2)
    whole = table(rows, wide).slice(skipped)  # slices keep the buffers of what they are cut from
    batches = []
    for start in range(0, whole.num_rows, chunk):
        batches += list(encoder.add(whole.slice(start, chunk)))
    batches += list(encoder.finish())
    found = decoded(batches)
    assert all(len(batch.data) <= 500 for batch in batches)

    expected = [
        (
            NOW if row["_timestamp"] is None else row["_timestamp"],
            row["key"],
            row["value"],
            tuple(row["_headers"] or ()),
        )
        for row in rows[skipped:]
    ]
    for partition in range(partitions):
        keyed = [record[1:] for record in found[partition] if record.key is not None]
        assert keyed == [
            row for row in expected if row[1] is not None and partition_of(row[1], partitions) == partition
        ]
    without = [record[1:] for records in found.values() for record in records if record.key is None]
    assert sorted(without, key=repr) == sorted((row for row in expected if row[1] is None), key=repr)


@pytest.mark.parametrize(
    ("key", "partition"),
    # Of 1,000 partitions, what `toPositive(murmur2(key)) % 1000` of kafka-clients 4.3.0 gives.
    [(b"", 681), (b"a", 524), (b"21", 340), (b"foobar", 166), (b"a-little-bit-long-string", 112)],
)
def test_a_key_has_the_partition_that_kafkas_java_client_gives_it(key: bytes, partition: int) -> None:
    encoder = BatchEncoder(partitions=1000, now_ms=NOW, max_bytes=1000)
    list(encoder.add(pa.record_batch({"key": pa.array([key]), "value": pa.array([b"x"])})))
    assert [batch.partition for batch in encoder.finish()] == [partition]


def test_records_without_a_key_stay_together_and_then_move_on() -> None:
    encoder = BatchEncoder(partitions=3, now_ms=NOW, sticky=1)
    rows = pa.record_batch({"key": pa.array([None, None], pa.binary()), "value": pa.array([b"x", b"y"])})
    for _ in range(3):
        list(encoder.add(rows))
    assert [(batch.partition, batch.records) for batch in encoder.finish()] == [(0, 2), (1, 2), (2, 2)]


def test_a_null_value_is_a_delete_and_an_empty_one_is_not() -> None:
    encoder = BatchEncoder(partitions=1, now_ms=NOW)
    list(encoder.add(pa.record_batch({"key": pa.array([b"a", b"a"]), "value": pa.array([None, b""])})))
    [batch] = encoder.finish()
    assert [record.value for record in decode_batch(batch.data)] == [None, b""]


def test_a_record_larger_than_any_batch_goes_alone_if_it_compresses_and_is_refused_if_not() -> None:
    rows = pa.record_batch(
        {"key": pa.array([b"a", b"b", b"c"]), "value": pa.array([b"x", b"y" * 5000, b"z"])}
    )
    small = BatchEncoder(partitions=1, now_ms=NOW, max_bytes=1000)
    batches = [*small.add(rows), *small.finish()]
    assert [batch.records for batch in batches] == [1, 1, 1]
    assert max(len(batch.data) for batch in batches) < 1000
    plain = BatchEncoder(partitions=1, now_ms=NOW, max_bytes=1000, codec=Codec.NONE)
    with pytest.raises(EncodingError, match=r"max\.message\.bytes"):
        list(plain.add(rows))


def test_a_row_may_choose_its_partition_but_only_one_that_exists() -> None:
    columns = {"key": pa.array([b"a", b"a"]), "value": pa.array([b"x", b"y"])}
    encoder = BatchEncoder(partitions=4, now_ms=NOW)
    list(encoder.add(pa.record_batch({**columns, "_partition": pa.array([2, None], pa.int32())})))
    assert sorted(batch.partition for batch in encoder.finish()) == sorted({2, partition_of(b"a", 4)})
    with pytest.raises(EncodingError, match="_partition 4 is not a partition"):
        list(encoder.add(pa.record_batch({**columns, "_partition": pa.array([0, 4], pa.int32())})))


def test_a_header_needs_a_name() -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([b"a"]),
            "value": pa.array([b"x"]),
            "_headers": pa.array([[{"key": None, "value": b"v"}]], HEADERS),
        }
    )
    with pytest.raises(EncodingError, match="no name"):
        list(BatchEncoder(partitions=1, now_ms=NOW).add(rows))


def test_times_below_the_millisecond_are_cut_off() -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 123999, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "key": pa.array([b"a"]),
            "value": pa.array([b"x"]),
            "_timestamp": pa.array([at], pa.timestamp("us", tz="UTC")),
        }
    )
    encoder = BatchEncoder(partitions=1, now_ms=NOW)
    list(encoder.add(rows))
    [batch] = encoder.finish()
    assert read_header(batch.data).max_timestamp == int(at.timestamp()) * 1000 + 123


def test_what_does_not_shrink_is_left_as_it_is() -> None:
    encoder = BatchEncoder(partitions=1, now_ms=NOW)
    list(encoder.add(pa.record_batch({"key": pa.array([b"a"]), "value": pa.array([bytes(range(256))])})))
    [batch] = encoder.finish()
    assert read_header(batch.data).attributes == Codec.NONE.value
    assert len(batch.data) == HEADER_SIZE + len(batch.data[HEADER_SIZE:])


def test_whatever_columns_there_are_one_compiled_kernel_serves_them() -> None:
    warm()
    kernels: list[Any] = [append, choose_partitions]
    compiled = [len(kernel.signatures) for kernel in kernels]
    columns = {"key": pa.array([None, b"a"]), "value": pa.array([b"", None])}
    times = pa.array([NOW, None], pa.timestamp("us", tz="UTC"))
    listed = pa.array([[{"key": "name", "value": b"v"}], None], HEADERS)
    for more in (
        {},
        {"_timestamp": times},
        {"_headers": listed},
        {"_partition": pa.array([0, None], pa.int32())},
    ):
        list(BatchEncoder(partitions=1, now_ms=NOW).add(pa.record_batch({**columns, **more})))
    assert compiled == [len(kernel.signatures) for kernel in kernels]
