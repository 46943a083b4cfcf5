"""Schemas are read without Spark, and what does not parse is shown with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.app import SchemaError
from headwater.app.schema import Array, Decimal, Field, Map, Scalar, Struct, parse, text

from .schemas import schemas

STRING = Scalar("string")


def test_the_contracts_example() -> None:
    assert parse("a string, b array<struct<c:int,d:decimal(10,2)>>, t timestamp") == (
        Field("a", STRING),
        Field("b", Array(Struct((Field("c", Scalar("int")), Field("d", Decimal(10, 2)))))),
        Field("t", Scalar("timestamp")),
    )


@pytest.mark.parametrize(
    ("ddl", "field"),
    [
        ("a: string", Field("a", STRING)),
        ("A STRING NOT NULL", Field("A", STRING, nullable=False)),
        (r"a string COMMENT 'it\'s'", Field("a", STRING, comment="it's")),
        ('a string comment "x, y"', Field("a", STRING, comment="x, y")),
        ("`a b``c` long", Field("a b`c", Scalar("bigint"))),
        ("größe integer", Field("größe", Scalar("int"))),
        ("a decimal", Field("a", Decimal(10, 0))),
        ("a numeric(5)", Field("a", Decimal(5, 0))),
        ("a map<string, array<array<byte>>>", Field("a", Map(STRING, Array(Array(Scalar("tinyint")))))),
        ("a struct<>", Field("a", Struct(()))),
        ("a struct<b string not null>", Field("a", Struct((Field("b", STRING, nullable=False),)))),
        ("timestamp timestamp", Field("timestamp", Scalar("timestamp"))),
        ("a timestamp_ltz", Field("a", Scalar("timestamp"))),
        ("\n  a\n  string\n", Field("a", STRING)),
    ],
)
def test_reads(ddl: str, field: Field) -> None:
    assert parse(ddl) == (field,)


@pytest.mark.parametrize(
    ("ddl", "says", "place"),
    [
        ("", "the schema is empty; name at least one column", ""),
        ("a", "the schema has the end where it needs the type of a", ""),
        ("a string,", "the schema has the end where it needs the name of a column", ""),
        ("a strng, b int", "a has the unknown type strng (did you mean string?)", "strng, b int"),
        ("a varchar(10)", "a has the unknown type varchar; write string", "varchar(10)"),
        ("a datetime", "a has the unknown type datetime; write timestamp", "datetime"),
        ("a int, b qqq", "b has the unknown type qqq; the types are array, bigint, binary", "qqq"),
        ("a int b int", 'the schema has b where it needs "," or the end', "b int"),
        ("a int, A string", "the schema has two columns named A; rename one", "A string"),
        ("s struct<a:int,a:int>", "the struct s has two columns named a", "a:int>"),
        ("a array<int", 'the schema has the end where it needs ">", as in array<…>', ""),
        ("a array int", 'the schema has int where it needs "<", as in array<…>', "int"),
        ("a map<string>", 'the schema has > where it needs ",", as in map<KEY, VALUE>', ">"),
        ("a decimal(39,2)", "there is no decimal(39, 2); the precision is 1 to 38", "decimal(39,2)"),
        ("a decimal(4,5)", "there is no decimal(4, 5)", "decimal(4,5)"),
        ("a decimal(x)", "the schema has x where it needs a number", "x)"),
        ("a int not", 'the schema has the end where it needs "null" after "not"', ""),
        ("a int comment b", "the schema has b where it needs the comment in quotes", "b"),
        ("a int comment 'it''s'", """the schema has 's' where it needs "," or the end""", "'s'"),
        ("`` int", "a column has no name; write one between the backquotes", "`` int"),
        ("`a int", "'`' does not belong here; close it", "`a int"),
        ("order-id string", "'-' does not belong here; put the name in `backquotes`", "-id string"),
        ("a " + "array<" * 200 + "int" + ">" * 200, "types are nested more than 100 deep", None),
    ],
)
def test_refuses(ddl: str, says: str, place: str | None) -> None:
    with pytest.raises(SchemaError) as refused:
        parse(ddl)
    assert str(refused.value).startswith(says)
    if place is not None:
        assert ddl[refused.value.position :] == place


def test_the_place_is_marked_below_its_line() -> None:
    with pytest.raises(SchemaError) as refused:
        parse("a string,\n  b strng,\n  c int")
    assert str(refused.value).splitlines()[1:] == ["      b strng,", "        ^"]


@given(schemas)
def test_what_is_written_is_read_again(fields: tuple[Field, ...]) -> None:
    assert parse(text(fields)) == fields


@given(st.text() | st.text("ab <>(),:`'\"\\1-\n") | st.from_regex(r"a (array|map|struct)<.*"))
def test_any_text_is_a_schema_or_refused_at_a_place_within(ddl: str) -> None:
    try:
        fields = parse(ddl)
    except SchemaError as error:
        refused = error
    else:
        assert parse(text(fields)) == fields
        return
    assert 0 <= refused.position <= len(ddl)
    assert refused.fix
