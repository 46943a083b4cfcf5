"""The schemas of Kafka's messages, read as data from kio's entities.

kio holds a frozen dataclass per message, version and nested structure, generated from Kafka's own
definitions. What the reader and the writer need to know of one is in its fields' types and metadata;
this module takes it from there, so that neither has to know how kio says it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema

__all__ = ["ABSENT", "FieldSchema", "fields_of", "is_flexible", "request_type", "response_type"]

#: The default of a field that has none.
ABSENT: Any = dataclasses.MISSING


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field of a structure, in one version."""

    name: str
    kind: str  # as kio names the wire's types ("int32", "string", "timedelta_i32", …), or "struct"
    struct: type | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


def request_type(api_key: int, version: int) -> type:
    """Load kio's entity for a request: its module alone, at the first use."""
    return load_request_schema(api_key, version)


def response_type(api_key: int, version: int) -> type:
    """Load kio's entity for a response: its module alone, at the first use."""
    return load_response_schema(api_key, version)


def is_flexible(entity: type) -> bool:
    """Tell whether a structure has compact lengths and tagged fields."""
    flexible: bool = getattr(entity, "__flexible__")  # noqa: B009 - kio's name, on a plain `type`
    return flexible


@cache
def fields_of(entity: type) -> tuple[FieldSchema, ...]:
    """Describe the fields of a structure in the order of the wire."""
    return tuple(_field(field) for field in dataclasses.fields(entity))


def _field(field: dataclasses.Field[Any]) -> FieldSchema:
    declared: Any = field.type
    is_nullable = False
    if isinstance(declared, types.UnionType):
        is_nullable = True
        (declared,) = (part for part in typing.get_args(declared) if part is not types.NoneType)
    is_array = typing.get_origin(declared) is tuple
    if is_array:
        declared = typing.get_args(declared)[0]
        if isinstance(declared, types.UnionType):
            (declared,) = (part for part in typing.get_args(declared) if part is not types.NoneType)
    struct = declared if dataclasses.is_dataclass(declared) else None
    return FieldSchema(
        name=field.name,
        kind="struct" if struct else field.metadata["kafka_type"],
        struct=typing.cast("type | None", struct),
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )
