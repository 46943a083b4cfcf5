"""Every type of column reads the same from a snapshot and from the log."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from .conftest import Session
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

VALUES: list[tuple[str, str, Any]] = [
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("tinyint(1)", "true", 1),
    ("smallint", "-32768", -32768),
    ("mediumint", "-8388608", -8388608),
    ("mediumint unsigned", "16777215", 16777215),
    ("int", "-2147483648", -2147483648),
    ("int unsigned", "4294967295", 4294967295),
    ("int(6) zerofill", "42", 42),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    ("decimal(20,5)", "-1234567890.12345", Decimal("-1234567890.12345")),
    ("decimal(5,0)", "-7", -7),
    ("decimal(65,30)", "-12345678901234567890123456789012345.1", f"-12345678901234567890123456789012345.1{'0' * 29}"),
    ("decimal(12,2) zerofill", "3.5", Decimal("3.50")),
    ("float", "0.1", Decimal("0.1")),
    ("float", "16777217", Decimal("16777216.0")),
    ("double", "0.1e0 + 0.2e0", Decimal("0.30000000000000004")),
    ("double", "-1.7976931348623157e308", Decimal("-1.7976931348623157e308")),
    ("bit(1)", "b'1'", True),
    ("bit(9)", "b'101010101'", 341),
    ("bit(64)", "~0", 18446744073709551615),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'0000-00-00'", "0000-00-00"),
    ("date", "'2024-00-00'", "2024-00-00"),
    ("datetime", "'9999-12-31 23:59:59'", "9999-12-31T23:59:59"),
    ("datetime", "'0000-00-00 00:00:00'", "0000-00-00T00:00:00"),
    ("datetime(3)", "'2024-02-29 12:13:14.125'", "2024-02-29T12:13:14.125"),
    ("datetime(5)", "'1000-01-01 00:00:00.00001'", "1000-01-01T00:00:00.00001"),
    ("timestamp NULL", "from_unixtime(1709208794)", "2024-02-29T12:13:14Z"),
    ("timestamp(6) NULL", "from_unixtime(2147483647.999999)", "2038-01-19T03:14:07.999999Z"),
    ("timestamp(2) NULL", "'0000-00-00 00:00:00'", "0000-00-00T00:00:00.00Z"),
    ("time", "'-838:59:59'", "-838:59:59"),
    ("time(1)", "'-00:00:00.1'", "-00:00:00.1"),
    ("time(6)", "'12:13:14.000001'", "12:13:14.000001"),
    ("year", "2155", 2155),
    ("year", "0", 0),
    ("enum('x','it''s','é')", "'it''s'", "it's"),
    ("enum('x')", "'no member'", ""),
    ("set('p','q','r')", "'r,p'", "p,r"),
    ("set('p','q')", "''", ""),
    ("json", "'{\"a\": [1.1, null]}'", '{"a": [1.1, null]}'),
    ("char(5)", "'ab  '", "ab"),
    ("char(255) CHARACTER SET utf8mb4", "repeat('😀', 255)", "😀" * 255),
    ("varchar(300)", "'quote \" back \\\\ line \\n \\0 é 😀'", 'quote " back \\ line \n \0 é 😀'),
    ("varchar(50) CHARACTER SET latin1", "'é€ü'", "é€ü"),
    ("tinytext CHARACTER SET latin2", "'žř'", "žř"),
    ("varchar(50) CHARACTER SET cp1251", "'Жук'", "Жук"),
    ("varchar(50) CHARACTER SET ucs2", "'ĀБ'", "ĀБ"),
    ("varchar(50) CHARACTER SET utf16", "'a😀'", "a😀"),
    ("varchar(50) CHARACTER SET utf32", "'a😀'", "a😀"),
    ("varchar(50) CHARACTER SET sjis", "'日本'", "日本"),
    ("varchar(50) CHARACTER SET gbk", "'中文'", "中文"),
    ("varchar(50) CHARACTER SET euckr", "'한국'", "한국"),
    ("longtext", "repeat('z', 70000)", "z" * 70000),
    ("binary(4)", "x'0100'", "AQAAAA=="),
    ("varbinary(300)", "x'00ff00'", "AP8A"),
    ("blob", "x''", ""),
    ("mediumblob", "x'00ff'", "AP8="),
    ("varchar(9) CHARACTER SET binary", "x'ff'", "/w=="),
    ("point", "st_geomfromtext('POINT(1 2)')", "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="),
    ("int AS (id * 2) VIRTUAL", "DEFAULT", 2),
    ("int AS (id * 3) STORED", "DEFAULT", 3),
]  # fmt: skip
OF_MARIADB: list[tuple[str, str, Any]] = [
    ("decimal(38,38)", "0.12345678901234567890123456789012345678", Decimal("0.12345678901234567890123456789012345678")),
    ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
    ("inet6", "'1::'", "1::"),
    ("inet6", "'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
    ("inet4", "'10.0.0.0'", "10.0.0.0"),
    ("json", "'{\"a\":  [1.10, null]}'", '{"a":  [1.10, null]}'),
]  # fmt: skip
OF_MYSQL: list[tuple[str, str, Any]] = [
    ("json", "'{\"bb\":  [1.10, null, -7, \"é\\\\n\"], \"a\": {}}'", '{"a": {}, "bb": [1.1, null, -7, "é\\n"]}'),
    ("json", "json_array(4294967296, 18446744073709551615, true)", "[4294967296, 18446744073709551615, true]"),
    ("json", "json_array(date '2024-02-29', time '-12:13:14.5')", '["2024-02-29", "-12:13:14.500000"]'),
    ("json", "json_array(timestamp '2024-02-29 01:02:03')", '["2024-02-29 01:02:03.000000"]'),
    ("json", "concat('[\"', repeat('z', 70000), '\"]')", f'["{"z" * 70000}"]'),
    ("json", "'\"text\"'", '"text"'),
    ("json", "json_array(-1234567890123456789.012345, 1.10, 1e100)", "[-1234567890123456789.012345, 1.1, 1e+100]"),
    ("json", "json_array(x'00ff')", '["base64:type15:AP8="]'),
]  # fmt: skip


def table_of(values: list[tuple[str, str, Any]]) -> tuple[str, str]:
    """Return the statements that make a table of columns and write a row with their values."""
    columns = ", ".join(f"c{n} {native}" for n, (native, _, _) in enumerate(values))
    return (
        f"CREATE TABLE t (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4",
        f"INSERT INTO t VALUES (1, {', '.join(value for _, value, _ in values)})",
    )


def parsed(row: tuple[bytes | None, ...]) -> list[Any]:
    return [json.loads(cell or b"", parse_float=Decimal) for cell in row]


@pytest.mark.parametrize("setting", ["binlog_row_metadata = FULL", "binlog_checksum = NONE", "compression"])
def test_values(url: str, sql: Session, setting: str, is_mysql: bool) -> None:
    if setting == "compression":
        setting = f"{'binlog_transaction_compression' if is_mysql else 'log_bin_compress'} = ON"
    values = (OF_MYSQL if is_mysql else OF_MARIADB) + VALUES
    create, insert = table_of(values)
    name = setting.partition(" ")[0]
    was = sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'")[0][1]
    sql(f"SET GLOBAL {setting}")
    sql("SET time_zone = '+05:00'")
    try:
        sql(create)
        with Follower(url, ["t"]) as follower:
            follower.settle()
            session = Session(url)  # which has what was set
            session("SET time_zone = '+05:00'")
            session(insert)
            session("INSERT INTO t (id) VALUES (2)")
            follower.until(lambda: follower.ops() == "cc")
            [first, second] = follower.rows["t"].values()
            assert parsed(first) == [1, *(wanted for _, _, wanted in values)]
            assert parsed(second)[1:-2] == [None] * (len(values) - 2)
            assert follower.rows == rows_of(url, ["t"])
            session("UPDATE t SET id = id + 10")
            session("DELETE FROM t")
            follower.until(lambda: follower.ops() == "ccuudd")
    finally:
        sql(f"SET GLOBAL {name} = {was}")


def test_bytes_of_every_character_set_of_one_byte(url: str, sql: Session) -> None:
    names = [
        str(row[0])
        for row in sql("SELECT character_set_name FROM information_schema.character_sets WHERE maxlen = 1")
        if row[0] != "binary"
    ]
    columns = ", ".join(f"{name} varchar(255) CHARACTER SET {name}" for name in names)
    sql(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    every = "".join(f"{byte:02x}" for byte in range(1, 256))
    with Follower(url, ["t"]) as follower:
        follower.settle()
        ascii_ = "".join(f"{byte:02x}" for byte in range(1, 128))
        values = ", ".join(f"_{name} x'{ascii_ if name == 'ascii' else every}'" for name in names)
        sql(f"INSERT INTO t VALUES (1, {values})")
        follower.settle()
        assert len(names) > 20
        assert follower.rows == rows_of(url, ["t"])


def drawn(draw: random.Random, native: str) -> str:
    """Return a value for a column."""
    base, _, rest = native.partition("(")
    first = rest.partition(")")[0].partition(",")[0]
    digits = int(first) if first.isdigit() else 0
    match base:
        case "decimal":
            behind = int(rest.partition(",")[2].rstrip(")"))
            whole = "".join(draw.choices("0123456789", k=draw.randint(0, digits - behind))) or "0"
            return f"{draw.choice('-+')}{whole}.{draw.randrange(10**behind):0{behind}d}"
        case "float":
            return repr(draw.uniform(-1, 1) * 10 ** draw.randint(-30, 30))
        case "double":
            return repr(draw.uniform(-1, 1) * 10 ** draw.randint(-300, 300))
        case "datetime" | "timestamp":
            year = draw.randint(1970, 2037) if base == "timestamp" else draw.randint(0, 9999)
            day = f"{year:04d}-{draw.randint(1, 12):02d}-{draw.randint(2, 28):02d}"
            return f"'{day} {draw.randrange(24)}:{draw.randrange(60)}:{draw.randrange(60)}.{draw.randrange(10**6):06d}'"
        case "time":
            hours = draw.randint(-838, 837)
            return f"'{hours}:{draw.randrange(60)}:{draw.randrange(60)}.{draw.randrange(10**6):06d}'"
        case "bit":
            return str(draw.getrandbits(digits))
        case "bigint":
            return str(draw.randint(-(2**63), 2**63 - 1) >> draw.randrange(64))
        case "set":
            return f"'{','.join(member for member in 'abcdefghij' if draw.random() < 0.5)}'"
        case _:
            return f"x'{draw.randbytes(draw.randint(0, 60)).hex()}'"


def test_random_values_are_the_same_in_the_log_and_in_a_snapshot(url: str, sql: Session) -> None:
    draw = random.Random(8)
    natives = [f"decimal({digits},{draw.randint(0, min(digits, 30))})" for digits in range(1, 66, 3)]
    natives += [f"{base}({digits})" for base in ("datetime", "timestamp", "time") for digits in range(7)]
    natives += [f"bit({bits})" for bits in (2, 7, 8, 17, 33, 63)]
    natives += ["float", "double", "bigint", "set('a','b','c','d','e','f','g','h','i','j')"]
    natives += ["binary(60)", "varbinary(60)", "blob", "varchar(60) CHARACTER SET latin1"]
    columns = ", ".join(f"c{n} {native} NULL" for n, native in enumerate(natives))
    sql(f"CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, {columns})")
    with Follower(url, ["t"]) as follower:
        follower.settle()
        for _ in range(6):
            rows = (", ".join(drawn(draw, native) for native in natives) for _ in range(25))
            sql(f"INSERT INTO t VALUES {', '.join(f'(NULL, {row})' for row in rows)}")
        follower.until(lambda: len(follower.changes) == 150)
        assert follower.rows == rows_of(url, ["t"])
