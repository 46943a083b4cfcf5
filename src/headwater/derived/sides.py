"""The two sides of a comparison: a topic or a store, and rows of a database in the same form."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from headwater.app.types import Field, Scalar
from headwater.client import Cluster, UnknownTopic
from headwater.core.urls import KafkaUrl
from headwater.derived.change import Row
from headwater.derived.columns import row_converter
from headwater.derived.comparing import pieces
from headwater.derived.decode import KeyText, parse_object
from headwater.derived.errors import DerivedError, Unreadable
from headwater.derived.follower import Stream
from headwater.derived.index import SearchIndex
from headwater.derived.reading import TopicReader, Unopened
from headwater.derived.store import Store
from headwater.derived.warehouse import Warehouse

__all__ = ["source_rows", "store_rows", "topic_rows"]

Piece = list[tuple[str, str | None]]
Shape = Callable[[Row], str]
"""Gives the text that a row is compared by."""


def topic_rows(broker: KafkaUrl, stream: Stream, *, say: Callable[[str], None]) -> Iterator[Piece]:
    """Yield what a topic says about rows, from its first record to where it ends now."""
    cluster = Cluster(broker, "headwater-verify")
    try:
        reader = TopicReader(cluster, stream.topic, None, store=stream.topic)
        ends = reader.ends()
        while any(reader.offsets[partition] < end for partition, end in ends.items()):
            piece: Piece = []
            for partition, record in reader.fetch(500):
                if isinstance(record, Unopened):
                    raise DerivedError(f"{stream.topic}-{partition} has a batch that does not open")
                try:
                    found = stream.decoder.read(record.key, record.value)
                except Unreadable as error:
                    say(
                        f"{stream.topic}-{partition} at offset {record.offset} says nothing about a row: {error}"
                    )
                    continue
                if found is not None:
                    key, row = found
                    piece.append((key, None if row is None else row.text))
            yield piece
    except UnknownTopic:
        raise DerivedError(
            f"there is no topic {stream.topic} on {broker}: has it been captured yet?"
        ) from None
    finally:
        cluster.close()


def store_rows(store: Store, key: KeyText) -> Iterator[Piece]:
    """Yield the rows of a store."""
    match store:
        case Warehouse():
            shape = _typed(store.columns)
            yield from pieces((each, shape(values)) for each, values in store.rows())
        case SearchIndex():  # long keys are not kept whole
            yield from pieces((key.of_row(parse_object(row)), row) for _, row in store.rows())
        case _:
            yield from pieces(store.rows())


def source_rows(
    table: Iterable[tuple[Sequence[str], Iterable[Sequence[bytes | None]]]],
    key: KeyText,
    store: Store | None = None,
) -> Iterator[Piece]:
    """Yield the rows of a database, given as columns' names and JSON texts, in the form that `store` has them."""
    shape = _converted(store.columns) if isinstance(store, Warehouse) else _as_is
    for names, rows in table:
        parts = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
        piece: Piece = []
        for values in rows:
            members = (part + (value or b"null").decode() for part, value in zip(parts, values, strict=True))
            text = "{" + ",".join(members) + "}"
            parsed = parse_object(text)
            piece.append((key.of_row(parsed), shape(Row(text, parsed))))
        yield piece


def _as_is(row: Row) -> str:
    return row.text


def _typed(columns: Sequence[Field]) -> Callable[[Sequence[Any]], str]:
    """Return what makes the text of typed values."""
    singles = [column.type == Scalar("float") for column in columns]
    names = [column.name for column in columns]

    def shape(values: Sequence[Any]) -> str:
        row = {
            name: _single(value) if single and value is not None else value
            for name, single, value in zip(names, singles, values, strict=True)
        }
        return json.dumps(row, ensure_ascii=False, default=_plain)

    return shape


def _converted(columns: Sequence[Field]) -> Shape:
    convert, shape = row_converter(columns), _typed(columns)

    def converted(row: Row) -> str:
        try:
            return shape(convert(row))
        except Unreadable:  # the store cannot have it: shown as it is
            return row.text

    return converted


def _single(value: float) -> float:
    return (
        value
        if math.isnan(value) or math.isinf(value)
        else float(struct.unpack("f", struct.pack("f", value))[0])
    )


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no value of a column")
