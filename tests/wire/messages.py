"""Messages to test with: any entity of kio's, its bytes as kio writes them, and the answer that says the same."""

from __future__ import annotations

import dataclasses
import io
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from headwater.wire.kafka.schema import FieldSchema, fields_of
from headwater.wire.kafka.versions import SERVED, Api

MILLISECOND = timedelta(milliseconds=1)
EVERY_VERSION = [
    (api_key, version)
    for api_key, versions in SERVED.items()
    for version in range(versions.first, versions.last + 1)
]
EVERY_VERSION_NAMES = [f"{Api(api_key).name}-{version}" for api_key, version in EVERY_VERSION]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}


def written(entity: Any) -> bytes:
    """Write an entity with kio's writer."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def entities(entity: type) -> st.SearchStrategy[Any]:
    """Generate entities of a type, with every field set."""
    return st.builds(entity, **{field.name: _values(field) for field in fields_of(entity)})


def _values(field: FieldSchema) -> st.SearchStrategy[Any]:
    if field.is_array:
        element = dataclasses.replace(field, is_array=False, is_nullable=False)
        values: st.SearchStrategy[Any] = st.lists(_values(element), max_size=3).map(tuple)
    elif field.struct is not None:
        values = entities(field.struct)
    else:
        values = _primitives(field.kind)
    return st.none() | values if field.is_nullable else values


def _primitives(kind: str) -> st.SearchStrategy[Any]:
    if kind.startswith("int"):
        return st.integers(-(1 << _BITS[kind] - 1), (1 << _BITS[kind] - 1) - 1)
    if kind == "timedelta_i32":
        return st.integers(-(1 << 31), (1 << 31) - 1).map(lambda value: value * MILLISECOND)
    if kind == "timedelta_i64":
        return st.integers(-(1 << 45), 1 << 45).map(lambda value: value * MILLISECOND)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(max_size=200),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=200),
        "uuid": st.uuids(),
        "error_code": st.sampled_from(ErrorCode),
        "datetime_i64": st.integers(0, 1 << 32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    }[kind]


def sample(entity: type, rng: random.Random) -> Any:
    """Make one entity from a seeded generator, for corpora that must not change from run to run."""
    return entity(**{field.name: _sample_value(field, rng) for field in fields_of(entity)})


def _sample_value(field: FieldSchema, rng: random.Random) -> Any:
    if field.is_nullable and rng.random() < 0.25:
        return None
    if field.is_array:
        element = dataclasses.replace(field, is_array=False, is_nullable=False)
        return tuple(_sample_value(element, rng) for _ in range(rng.randint(1, 3)))
    if field.struct is not None:
        return sample(field.struct, rng)
    small = rng.randint(-1, 100)
    return {
        "bool": small > 50,
        "float64": small / 8,
        "string": "name"[: small % 5],
        "bytes": rng.randbytes(small % 20),
        "records": rng.randbytes(small % 80),
        "uuid": UUID(int=rng.getrandbits(128) | 1),
        "error_code": ErrorCode.none,
        "timedelta_i32": small * MILLISECOND,
        "timedelta_i64": small * MILLISECOND,
        "datetime_i64": datetime.fromtimestamp(1_700_000_000 + small, UTC),
    }.get(field.kind, small)


def answer_of(entity: Any) -> dict[str, Any]:
    """Say the same as an entity in a plain mapping, the way a handler answers."""
    return {field.name: _plain(getattr(entity, field.name)) for field in fields_of(entity.__class__)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return answer_of(value)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, timedelta):
        return value // MILLISECOND
    return value
