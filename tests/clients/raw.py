"""Kafka's protocol byte by byte, for what no client would send.

Schemas are kio's, called by name and version with plain mappings; frames and connections are here.
"""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import types
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from headwater.record.records import Record, encode_batch

from .brokers import HOUR_AGO, Broker, eventually

API_KEYS = {name: key for key, name in api_key_map.items()}
SECONDS = 15.0
GROUP = 32
"""The resource type of a group's settings."""
SET, DELETE, APPEND = 0, 1, 2
"""What IncrementalAlterConfigs does with a setting."""


class Closed(Exception):
    """The broker closed the connection."""


def build(schema: Any, fields: Mapping[str, Any]) -> Any:
    """Make a kio entity of plain mappings, sequences and milliseconds; arrays left out are empty, flags off."""
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    unknown = set(fields) - {field.name for field in dataclasses.fields(schema)}
    assert not unknown, f"{schema.__name__} has no {unknown}"
    for field in dataclasses.fields(schema):
        wanted = _without_none(hints[field.name])
        is_array = typing.get_origin(wanted) is tuple
        if field.name not in fields:
            if field.default is dataclasses.MISSING and (is_array or wanted is bool):
                values[field.name] = () if is_array else False
            continue
        value = fields[field.name]
        if is_array and value is not None:
            inner = typing.get_args(wanted)[0]
            values[field.name] = tuple(_value(inner, field, each) for each in value)
        else:
            values[field.name] = _value(wanted, field, value)
    return schema(**values)


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _value(wanted: Any, field: dataclasses.Field[Any], value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(wanted, value)
    if field.metadata.get("kafka_type", "").startswith("timedelta") and isinstance(value, int):
        return timedelta(milliseconds=value)
    return value


def frame(payload: bytes) -> bytes:
    """Put the size before a request."""
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, correlation: int = 7, *, flexible: bool = False) -> bytes:
    """Write a request's header, with the client id `raw`."""
    return struct.pack(">hhih3s", api_key, version, correlation, 3, b"raw") + (b"\0" if flexible else b"")


def request(api: str, version: int, correlation: int = 7, **fields: Any) -> bytes:
    """Write a whole request, size included."""
    schema = load_request_schema(API_KEYS[api], version)
    body = io.BytesIO()
    entity_writer(schema)(body, build(schema, fields))
    head = header(API_KEYS[api], version, correlation, flexible=schema.__flexible__)
    return frame(head + body.getvalue())


class Raw:
    """One connection to a broker."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=SECONDS)
        self._stream = self._socket.makefile("rb")
        self._correlation = 0

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Receive one response without its size."""
        try:
            size = self._stream.read(4)
            if len(size) < 4:
                raise Closed
            return self._stream.read(struct.unpack(">i", size)[0])
        except ConnectionError as error:
            raise Closed from error

    def start(self, api: str, version: int, **fields: Any) -> None:
        """Send a request without waiting for its response."""
        self._correlation += 1
        self.send(request(api, version, self._correlation, **fields))

    def finish(self, api: str, version: int) -> Any:
        """Receive the response to the request that was started last."""
        payload = self.receive()
        assert struct.unpack_from(">i", payload)[0] == self._correlation
        schema = load_response_schema(API_KEYS[api], version)
        # The one response that clients of every version can read has no tagged fields in its header.
        flexible = schema.__flexible__ and api != "api_versions"
        if flexible:
            assert payload[4] == 0
        start = 5 if flexible else 4
        answer, size = entity_reader(schema)(payload, start)
        assert start + size == len(payload)
        return answer

    def call(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request and return its response as kio's entity."""
        self.start(api, version, **fields)
        return self.finish(api, version)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def batch(
    count: int = 1,
    *,
    value: bytes = b"v",
    timestamp: int = HOUR_AGO,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Make a record batch; `producer` is its producer's id and epoch, and its first sequence number."""
    records = [Record(offset=each, timestamp=timestamp, key=b"k", value=value) for each in range(count)]
    producer_id, producer_epoch, base_sequence = producer
    return bytes(
        encode_batch(
            records,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
    )


def topic_id(raw: Raw, topic: str) -> Any:
    """Ask for a topic's id."""
    return raw.call("metadata", 12, topics=[{"name": topic, "topic_id": None}]).topics[0].topic_id


def end_offsets(raw: Raw, topic: str, partitions: int = 1) -> list[int]:
    """Ask for the next offset of every partition; -1 is an error's."""
    asked = [{"partition_index": each, "timestamp": -1} for each in range(partitions)]
    answer = raw.call(
        "list_offsets", 7, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": asked}]
    )
    found = {each.partition_index: int(each.offset) for each in answer.topics[0].partitions}
    return [found[each] for each in range(partitions)]


def new_producer(raw: Raw) -> int:
    """Ask for a producer id."""
    answer = eventually(
        lambda: raw.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000),
        # Kafka's first producer after a start waits for the coordinator of transactions.
        lambda seen: bool(seen.error_code != ErrorCode.coordinator_load_in_progress),
    )
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
    return int(answer.producer_id)


def produce(raw: Raw, topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> Any:
    """Produce bytes to a partition and return that partition's part of the answer."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    answer = raw.call("produce", 9, acks=acks, timeout=10_000, topic_data=data)
    [found] = answer.responses
    [part] = found.partition_responses
    return part


def alter_group(
    raw: Raw, group: str, *changes: tuple[str, int, str | None], **fields: Any
) -> tuple[ErrorCode, str]:
    """Change settings of a group, and return the code and the message of the answer."""
    configs = [{"name": name, "config_operation": what, "value": value} for name, what, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    [done] = raw.call("incremental_alter_configs", 1, resources=[resource], **fields).responses
    return ErrorCode(done.error_code), done.error_message or ""


def described_group(raw: Raw, group: str, *names: str) -> dict[str, Any]:
    """Return the settings that a group has, by name, all or those named."""
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": names or None}
    [found] = raw.call("describe_configs", 4, resources=[resource], include_synonyms=True).results
    assert (found.error_code, found.error_message) == (ErrorCode.none, "")
    return {entry.name: entry for entry in found.configs}
