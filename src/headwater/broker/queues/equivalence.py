"""When a second declaration is the same as the first, and how RabbitMQ says that it is not.

Its texts show values as Erlang does, and their AMQP types.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Float, Number, Table, Text


def check_same_field(name: str, current: bool | str, received: bool | str, resource: str) -> None:
    """Refuse a second declaration where a field of it differs."""
    if current != received:
        raise _inequivalent(name, resource, f"'{_atom(received)}'", f"'{_atom(current)}'")


def check_same_arguments(current: Table, received: Table, names: Sequence[str], resource: str) -> None:
    """Refuse a second declaration where one of the named arguments differs.

    Numbers are compared by value, however many bytes they came in.
    """
    for name in names:
        if name in current and name in received:
            old, new = current[name], received[name]
            if not _equal(old, new):
                raise _inequivalent(name, resource, f"'{_bare(new)}'", f"'{_bare(old)}'")
        elif (name in current or name in received) and not _classic(name, current, received):
            raise _inequivalent(name, resource, _with_type(received, name), _with_type(current, name))


def _classic(name: str, current: Table, received: Table) -> bool:
    # To say that a queue is classic is to say nothing.
    return name == "x-queue-type" and {**current, **received}[name] == "classic"


def _inequivalent(name: str, resource: str, received: str, current: str) -> AmqpError:
    text = f"inequivalent arg '{name}' for {resource}: received {received} but current is {current}"
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text)


def _equal(one: Any, other: Any) -> bool:
    return _family(one) is _family(other) and one == other


def _family(value: Any) -> type:
    if isinstance(value, Number):
        return int
    return float if isinstance(value, float) else type(value)


def _with_type(arguments: Table, name: str) -> str:
    if name not in arguments:
        return "none"
    value = arguments[name]
    return f"the value '{_bare(value)}' of type '{type_name(value)}'"


def type_name(value: Any) -> str:
    """Return RabbitMQ's name of a value's type; a number has that of the field it is written in."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Number):
        return value.name
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    names: dict[type, str] = {
        Float: "float",
        float: "double",
        str: "longstr",
        Text: "longstr",
        bytes: "binary",
        datetime: "timestamp",
        Decimal: "decimal",
        list: "array",
        dict: "table",
    }
    return next((name for kind, name in names.items() if isinstance(value, kind)), "void")


def printed(value: Any) -> str:
    """Return a value as Erlang's ~p shows it.

    >>> printed("some")
    '<<"some">>'
    """
    if isinstance(value, str):
        return f'<<"{value}">>' if value else "<<>>"
    return _bare(value)


def _bare(value: Any) -> str:
    if value is None:
        return "undefined"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _atom(value: bool | str) -> str:
    if isinstance(value, bool):
        return _bare(value)
    return value if value.isalnum() else f"'{value}'"
