"""Checks of what a declaration is given: each returns the value in its final form, or raises `AppError`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args
from urllib.parse import urlsplit

from headwater.app import durations
from headwater.app import schema as schemas
from headwater.app.definitions import Format, Table
from headwater.app.errors import AppError, Location, SchemaError, did_you_mean
from headwater.core.errors import SettingError

_MAILBOX = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?=.{1,253}\Z)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*"
)
"""What a form in a browser takes for an e-mail address (HTML, "valid e-mail address")."""

METADATA = ("_key", "_partition", "_offset", "_timestamp", "_headers")
"""The columns about a record that a topic can be asked for."""

HIDDEN = ("_wm", "_marker")
"""The columns by which the source tells Spark the time."""

CHANGE = ("_deleted", "_changed_at", "_version")
"""The columns about a change that a table has beside its own."""

WAREHOUSE = ("_partition", "_timestamp", "_bucket")
"""The columns that rows have beside their own on the way into a warehouse."""


def choice(where: Location, option: str, value: object, literal: Any) -> Any:
    """Return a value that is one of a `Literal`'s."""
    choices = get_args(literal)
    if value not in choices:
        quoted = ", ".join(f'"{each}"' for each in choices)
        guess = did_you_mean(value, list(choices)) if isinstance(value, str) else ""
        raise AppError(where, f"{option}={value!r} is unknown{guess}", f"{option} is one of {quoted}")
    return value


def duration(where: Location, option: str, value: str, *, zero: bool = True) -> int:
    """Return the milliseconds of a duration."""
    try:
        milliseconds = durations.milliseconds(value)
    except SettingError as error:
        raise AppError(where, *f"{option}={error}".split("; ", 1)) from None
    if not milliseconds and not zero:
        raise AppError(
            where, f"{option}={value!r} is no time at all", f'write one, as in {option}="1 minute"'
        )
    return milliseconds


def count(where: Location, option: str, value: int | None) -> int | None:
    """Return a number of at least 1, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise AppError(where, f"{option}={value!r} is no number of at least 1", f"write {option}=1 or more")
    return value


def columns(where: Location, option: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the columns that an option names: one as a string, several as a list."""
    if value is None:
        return ()
    given = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    fix = f'name a column, {option}="a", or several, {option}=["a", "b"]'
    for name in given:
        if not isinstance(name, str) or not name:
            raise AppError(where, f"{option}={value!r} is no column", fix)
    if len(set(given)) != len(given):
        raise AppError(where, f"{option}={value!r} names a column twice", fix)
    return given


def some_columns(where: Location, option: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns that an option names, of which there must be one."""
    given = columns(where, option, value)
    if not given:
        raise AppError(where, f"{option} names no column", f'write {option}="COLUMN"')
    for name in given:
        if "," in name:  # before there is a schema to look it up in
            names = ", ".join(f'"{part.strip()}"' for part in name.split(","))
            raise AppError(
                where, f"{option}={name!r} is one name with a comma in it", f"write {option}=[{names}]"
            )
    return given


def schema(where: Location, ddl: object) -> tuple[schemas.Field, ...]:
    """Return the columns of a schema."""
    if not isinstance(ddl, str):
        fix = 'write it as text, as in "id string, placed_at timestamp"'
        raise AppError(where, f"the schema is {type(ddl).__name__}, not text", fix)
    try:
        fields = schemas.parse(ddl)
    except SchemaError as error:
        # The two lines that mark the place follow the sentence.
        raise AppError(where, error.problem, str(error).split("; ", 1)[1]) from None
    for field in fields:
        if field.name.lower() in HIDDEN:
            problem = f"the schema has a column {field.name}, which Headwater keeps for itself"
            raise AppError(where, problem, "rename it")
    return fields


def with_schema(table: Table, ddl: object) -> Table:
    """Return a table with its columns."""
    fields = schema(table.where, ddl)
    for field in fields:
        if field.name.lower() in CHANGE:
            problem = f"the table {table.name} has a column {field.name}, which says what became of a row"
            raise AppError(table.where, problem, "rename it")
    in_schema(table.where, "key", table.key, fields)
    event_time(table.where, table.event_time, fields, ())
    return replace(table, schema=schemas.text(schemas.nullable(fields)), fields=fields)


def in_columns(where: Location, option: str, names: Iterable[str], known: list[str]) -> None:
    """Refuse a column that is not among those of the schema."""
    for name in names:
        if name not in known:
            problem = f"{option}={name!r} is no column of the schema{did_you_mean(name, known)}"
            raise AppError(where, problem, f"the columns are {', '.join(known)}")


def in_schema(where: Location, option: str, names: Iterable[str], fields: Sequence[schemas.Field]) -> None:
    """Refuse a column that the schema does not have."""
    in_columns(where, option, names, [field.name for field in fields])


def event_time(
    where: Location, name: str | None, fields: Sequence[schemas.Field], metadata: Sequence[str]
) -> None:
    """Refuse an event time that is neither a timestamp of the schema nor that of the record itself."""
    if name is None or (name == "_timestamp" and name in metadata):
        return
    if name == "_timestamp":
        problem = 'event_time="_timestamp", and the column is not asked for'
        raise AppError(where, problem, 'add metadata="_timestamp"')
    in_schema(where, "event_time", [name], fields)
    [field] = [field for field in fields if field.name == name]
    if field.type != schemas.Scalar("timestamp"):
        problem = f"event_time={name!r} is {schemas.type_text(field.type)}, not timestamp"
        raise AppError(where, problem, f'declare it as "{name} timestamp" in the schema')


def topic_format(where: Location, value: str, fields: Sequence[schemas.Field]) -> Format:
    """Return a format that can hold the columns of the schema."""
    checked: Format = choice(where, "format", value, Format)
    if checked == "raw":
        for field in fields:
            types = (schemas.Scalar("binary"), schemas.Scalar("string"))
            if field.name not in ("key", "value") or field.type not in types:
                problem = f'format="raw" has no column "{field.name} {schemas.type_text(field.type)}"'
                raise AppError(where, problem, 'the schema is "key binary, value binary", or one of these')
    return checked


def metadata(where: Location, value: Sequence[str], fields: Sequence[schemas.Field]) -> tuple[str, ...]:
    """Return the columns about a record that are asked for."""
    given = columns(where, "metadata", value)
    taken = {field.name.lower() for field in fields}
    for name in given:
        if name not in METADATA:
            problem = f"metadata={name!r} is unknown{did_you_mean(name, list(METADATA))}"
            raise AppError(where, problem, f"there are {', '.join(METADATA)}")
        if name in taken:
            raise AppError(where, f"metadata={name!r} is a column of the schema too", "rename the column")
    return given


def one_name(where: Location, option: str, value: object) -> str:
    """Return the name of another definition."""
    if not isinstance(value, str):
        fix = f'name one topic, stream or view, as in {option}="orders"'
        raise AppError(where, f"{option}={value!r} is no name", fix)
    return value


def alert_address(where: Location, option: str, value: str) -> str:
    """Return an address that alerts can be sent to."""
    if value == "browser:":
        return value
    if isinstance(value, str) and value.startswith("mailto:"):
        found = value.removeprefix("mailto:").split(",")
        if len(value) > 2000 or not all(_MAILBOX.fullmatch(each) for each in found):
            fix = f'write one or several, as in {option}="mailto:ops@example.com"'
            raise AppError(where, f"{option}={value!r} is no e-mail address", fix)
        return value
    return web_address(where, option, value)


def web_address(where: Location, option: str, value: str) -> str:
    """Return an address that a webhook can be sent to."""
    fix = f'write the whole address, as in {option}="https://hooks.example/orders"'
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        good = False
    if not good or not value.isprintable() or " " in value:
        raise AppError(where, f"{option}={value!r} is no http or https address", fix)
    if "@" in parts.netloc:
        # It is not shown: it may hold a password.
        problem = f"{option} has a user or password in its address, which would be seen in logs"
        raise AppError(where, problem, 'leave it out, and sign with secret_env="HOOK_SECRET"')
    return value


def variable(where: Location, option: str, value: str | None) -> str | None:
    """Return the name of an environment variable, or None."""
    if value is not None and not (isinstance(value, str) and value.isascii() and value.isidentifier()):
        # The value is not shown: it may be the secret itself.
        fix = f'put the secret into one and name it, as in {option}="HOOK_SECRET"'
        raise AppError(where, f"{option} is no name of an environment variable", fix)
    return value


def address(where: Location, option: str, value: str) -> str:
    """Return an address that is a URL."""
    if not isinstance(value, str) or "://" not in value:
        fix = f'write a URL, as in {option}="postgresql://HOST/DATABASE#SCHEMA.TABLE"'
        raise AppError(where, f"{option}={value!r} is no address", fix)
    return value
