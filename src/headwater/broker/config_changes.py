"""Changes to configurations, as IncrementalAlterConfigs asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from headwater.core.errors import ApiError, ErrorCode
from headwater.core.settings import Kind, Settings, Value


class Operation(IntEnum):
    """What is done to a configuration; the numbers are Kafka's on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def apply_changes(
    configs: Mapping[str, str],
    changes: Iterable[tuple[str, int, str | None]],
    table: Settings,
    inherited: Mapping[str, Value],
) -> dict[str, str]:
    """Return `configs` after changes of (name, operation, text), or raise `ApiError`.

    A list that is not set is added to, and taken from, as it is `inherited`.
    """
    result = dict(configs)
    for name, number, text in changes:
        try:
            operation = Operation(number)
        except ValueError:
            raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {number}") from None
        if operation is Operation.DELETE:
            result.pop(name, None)
        elif text is None:
            raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {name}")
        elif operation is Operation.SET:
            result[name] = text
        else:
            result[name] = _edited(name, operation, text, result, table, inherited)
    return result


def _edited(
    name: str,
    operation: Operation,
    text: str,
    configs: Mapping[str, str],
    table: Settings,
    inherited: Mapping[str, Value],
) -> str:
    if name not in table or table[name].kind is not Kind.LIST:
        raise ApiError(
            ErrorCode.invalid_config, f"Can't {operation.name} to key {name} because its type is not LIST."
        )
    now = configs[name] if name in configs else table[name].text(inherited[name]) or ""
    items = [item for item in now.split(",") if item]
    for item in text.split(","):
        if operation is Operation.APPEND and item not in items:
            items.append(item)
        elif operation is Operation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)
