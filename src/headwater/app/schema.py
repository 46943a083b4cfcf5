"""Schemas as Spark writes them, read without Spark.

    a string, b array<struct<c: int, d: decimal(10, 2)>> not null, `odd name` map<string, double>

The grammar is that of Spark's `StructType.fromDDL`, less what a record on a topic cannot carry: intervals,
`void`, `variant`, and `char` and `varchar`, which Spark refuses outside of tables. `text` writes a schema so
that Spark reads the same.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from headwater.app.errors import SchemaError, did_you_mean
from headwater.app.types import (
    SCALARS,
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Scalar,
    Struct,
    nullable,
    text,
    type_text,
)

__all__ = [
    "Array",
    "DataType",
    "Decimal",
    "Field",
    "Map",
    "Scalar",
    "Struct",
    "nullable",
    "parse",
    "text",
    "type_text",
]

_DECIMALS: Final = ("decimal", "dec", "numeric")
_NESTED: Final = ("array", "map", "struct")
_INSTEAD: Final = {
    "char": "string",
    "character": "string",
    "varchar": "string",
    "text": "string",
    "str": "string",
    "bool": "boolean",
    "datetime": "timestamp",
    "bytes": "binary",
    "number": "double, or decimal(PRECISION, SCALE)",
    "interval": "bigint, with the unit in the name",
    "variant": "string, and use parse_json in the function",
    "void": "the type that the column will have",
    "list": "array<TYPE>",
    "dict": "map<KEY, VALUE>",
    "object": "struct<NAME: TYPE>",
    "json": "string, or a struct with its fields",
}
_NAMES: Final = sorted({*SCALARS.values(), "decimal", *_NESTED})
_MAX_PRECISION: Final = 38
# Python and Spark's parser both recurse once per level; nothing a person writes comes near.
_MAX_DEPTH: Final = 100

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<quoted>`(?:[^`]|``)*`)
    | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>[0-9]+(?!\w))
    | (?P<word>\w+)
    | (?P<sign>[<>(),:])
    | (?P<end>$)
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse(ddl: str) -> tuple[Field, ...]:
    """Return the columns that a schema declares, or raise `SchemaError` with the place.

    >>> parse("id bigint not null, tags array<string>")[0]
    Field(name='id', type=Scalar(name='bigint'), nullable=False, comment=None)
    """
    return _Parser(ddl).schema()


class _Parser:
    """Reads one schema from left to right, a token at a time."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._depth = 0
        self._at = 0
        self._next()

    def schema(self) -> tuple[Field, ...]:
        if self._kind == "end":
            self._refuse("the schema is empty", 'name at least one column, as in "id string"')
        fields = self._fields("the schema")
        if self._kind != "end":
            self._expected('"," or the end')
        return fields

    def _next(self) -> None:
        token = _TOKEN.match(self._ddl, self._at)
        if token is None:
            self._start = self._at + len(self._ddl[self._at :]) - len(self._ddl[self._at :].lstrip())
            fix = "close it" if self._ddl[self._start] in "`'\"" else "put the name in `backquotes`"
            self._refuse(f"{self._ddl[self._start]!r} does not belong here", fix)
        self._kind = str(token.lastgroup)
        self._text = token[self._kind]
        self._start, self._at = token.start(self._kind), token.end()

    def _fields(self, whose: str) -> tuple[Field, ...]:
        fields: dict[str, Field] = {}
        while True:
            start = self._start
            field = self._field()
            # Spark does not tell upper from lower case in names of columns.
            if field.name.lower() in fields:
                problem = f"{whose} has two columns named {field.name}"
                raise SchemaError(self._ddl, start, problem, "rename one; upper and lower case are the same")
            fields[field.name.lower()] = field
            if not self._take(","):
                return tuple(fields.values())

    def _field(self) -> Field:
        if self._kind == "quoted":
            name = self._text[1:-1].replace("``", "`")
        elif self._kind == "word":
            name = self._text
        else:
            self._expected("the name of a column")
        if not name:
            self._refuse("a column has no name", "write one between the backquotes")
        self._next()
        self._take(":")
        type_ = self._type(name)
        nullable = not self._take_word("not")
        if not nullable and not self._take_word("null"):
            self._expected('"null" after "not"')
        return Field(name, type_, nullable, self._comment())

    def _comment(self) -> str | None:
        if not self._take_word("comment"):
            return None
        if self._kind != "string":
            self._expected("the comment in quotes")
        comment = re.sub(r"\\(.)", r"\1", self._text[1:-1], flags=re.DOTALL)
        self._next()
        return comment

    def _type(self, column: str) -> DataType:
        if self._kind != "word":
            self._expected(f"the type of {column}")
        name, start = self._text.lower(), self._start
        self._next()
        if name in SCALARS:
            return Scalar(SCALARS[name])
        if name in _DECIMALS:
            return self._decimal(start)
        if name not in _NESTED:
            guess = "" if name in _INSTEAD else did_you_mean(name, _NAMES)
            fix = f"write {_INSTEAD[name]}" if name in _INSTEAD else f"the types are {', '.join(_NAMES)}"
            raise SchemaError(self._ddl, start, f"{column} has the unknown type {name}{guess}", fix)
        return self._nested(name, column)

    def _nested(self, name: str, column: str) -> DataType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f"types are nested more than {_MAX_DEPTH} deep", "flatten the schema")
        self._need("<", f"{name}<…>")
        type_: DataType
        if name == "array":
            type_ = Array(self._type(column))
        elif name == "map":
            key = self._type(column)
            self._need(",", "map<KEY, VALUE>")
            type_ = Map(key, self._type(column))
        elif self._kind == "sign" and self._text == ">":
            type_ = Struct(())
        else:
            type_ = Struct(self._fields(f"the struct {column}"))
        self._need(">", f"{name}<…>")
        self._depth -= 1
        return type_

    def _decimal(self, start: int) -> Decimal:
        precision, scale = 10, 0  # Spark's default
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._need(")", "decimal(PRECISION, SCALE)")
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            problem = f"there is no decimal({precision}, {scale})"
            fix = f"the precision is 1 to {_MAX_PRECISION}, and the scale no more than it"
            raise SchemaError(self._ddl, start, problem, fix)
        return Decimal(precision, scale)

    def _number(self) -> int:
        if self._kind != "number":
            self._expected("a number")
        number = int(self._text)
        self._next()
        return number

    def _take(self, sign: str) -> bool:
        if self._kind == "sign" and self._text == sign:
            self._next()
            return True
        return False

    def _take_word(self, word: str) -> bool:
        if self._kind == "word" and self._text.lower() == word:
            self._next()
            return True
        return False

    def _need(self, sign: str, form: str) -> None:
        if not self._take(sign):
            self._expected(f'"{sign}", as in {form}')

    def _expected(self, what: str) -> NoReturn:
        found = "the end" if self._kind == "end" else self._text
        self._refuse(f"the schema has {found} where it needs {what}", "write columns as NAME TYPE, NAME TYPE")

    def _refuse(self, problem: str, fix: str) -> NoReturn:
        raise SchemaError(self._ddl, self._start, problem, fix)
