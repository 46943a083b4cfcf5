"""Bodies of posted records, and what the schema says of them; no broker is needed to refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from headwater.app import schema
from headwater.serve import ingest
from headwater.serve.checks import MAX_UNREAD, problem, unread
from headwater.serve.errors import HttpError
from headwater.serve.records import split
from headwater.views import ViewStore

from .serve_helpers import Served, served

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(st.text(), _json, max_size=4)


@given(st.lists(_objects, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_each_record_keeps_its_text(
    rows: list[dict[str, object]], indent: int | None, ascii_only: bool
) -> None:
    body = json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    try:
        body.decode()
    except UnicodeDecodeError:
        return
    found = split(b" " + body + b"\n")
    assert [json.loads(record.text) for record in found] == rows == [record.columns for record in found]
    assert all(record.text in body.decode() for record in found)


def test_digits_are_not_lost() -> None:
    [record] = split(b'{"n": 12345678901234567890.10}')
    assert record.text == '{"n": 12345678901234567890.10}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[{}", "no JSON: Expecting ',' or ']' at character 3"),
        (b"[{},]", "no JSON"),
        (b"{} {}", "goes on behind its JSON"),
        (b"7", "the body is no JSON object"),
        (b"[{}, 7]", "element 1 of the array is no JSON object"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b"\xff{}", "not UTF-8: byte 0"),
        (b"[" * 100_000, "no JSON"),
        (b'{"a":' * 100_000, "no JSON"),
    ],
)
def test_a_body_that_holds_no_records_says_why(body: bytes, text: str) -> None:
    with pytest.raises(HttpError, match=text) as caught:
        split(body)
    assert caught.value.status == 400


def test_a_request_holds_so_many_records_and_no_more() -> None:
    assert len(split(b"[" + b"{}," * 9_999 + b"{}]")) == 10_000
    with pytest.raises(HttpError, match="at most 10000 records") as caught:
        split(b"[" + b"{}," * 10_000 + b"{}]")
    assert caught.value.status == 413


async def test_a_body_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "_BODY_SECONDS", 0.1)

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"{", "more_body": True}

    with pytest.raises(HttpError, match="not there within") as caught:
        await ingest.read_body(Request({"type": "http", "headers": []}, receive))
    assert caught.value.status == 408


async def test_lines_that_trickle_in_are_taken_while_one_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "_BODY_SECONDS", 0.4)
    parts = iter([b'{"n":', b"1}\n", *[b"\n"] * 8, b'{"n":', *[b" "] * 100])

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": next(parts), "more_body": True}

    lines = ingest._lines(Request({"type": "http", "headers": []}, receive))
    assert await anext(lines) == [b'{"n":1}', *[b""] * 8], "what came whole is written"
    with pytest.raises(HttpError, match="no line came to its end within") as caught:
        await anext(lines)
    assert caught.value.status == 408


async def test_lines_are_waited_for_no_shorter_where_the_broker_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "_BODY_SECONDS", 0.3)
    parts = iter([b"{}\n" * 1000, b"{}\n"])

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.05)
        part = next(parts, b"")
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    lines = ingest._lines(Request({"type": "http", "headers": []}, receive))
    assert len(await anext(lines)) == 1000
    await asyncio.sleep(0.4)
    assert await anext(lines) == [b"{}"]


FIELDS = schema.parse(
    "id string not null, n int, big bigint, price decimal(5,2), at timestamp, day date, ok boolean, raw binary, "
    "tags array<string>, scores map<string, double>, place struct<city: string, zip: int not null>"
)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "id is missing, and the schema says NOT NULL"),
        ({"n": "7"}, "n is text, and the schema says int"),
        ({"n": 7.5}, "n is a number 7.5, and the schema says int"),
        ({"n": 2**31}, "n is a number 2147483648, and the schema says int"),
        ({"n": True}, "n is a boolean, and the schema says int"),
        ({"big": 2**63}, "big is a number"),
        ({"price": 1000}, "price is a number 1000, and the schema says decimal(5,2)"),
        ({"price": "1e2"}, "price is text, and the schema says decimal(5,2)"),
        ({"price": 1.555}, "price is a number 1.555, and the schema says decimal(5,2)"),
        ({"price": 10**400}, "price is a number 1000"),
        ({"scores": {"a": 10**400}}, "scores.a is a number 1000"),
        ({"at": "yesterday"}, 'at is text, and the schema says timestamp, written as "2026-01-31T14:00:00Z"'),
        ({"at": 7}, 'at is a number 7, and the schema says timestamp, written as "2026-01-31T14:00:00Z"'),
        (
            {"at": "0001-01-01T00:00:00+01:00"},
            'at is text, and the schema says timestamp, written as "2026-01-31T14:00:00Z"',
        ),
        ({"day": "2026-02-30"}, 'day is text, and the schema says date, written as "2026-01-31"'),
        ({"day": "20260228"}, 'day is text, and the schema says date, written as "2026-01-31"'),
        ({"ok": 1}, "ok is a number 1, and the schema says boolean"),
        ({"raw": "%%%"}, "raw is text, and the schema says binary, written as base64"),
        ({"tags": "a"}, "tags is text, and the schema says array<string>"),
        ({"tags": ["\ud83d"]}, "tags[0] holds half a surrogate pair"),
        ({"tags": ["a", 7]}, "tags[1] is a number 7, and the schema says string"),
        ({"scores": {"a": "b"}}, "scores.a is text, and the schema says double"),
        ({"place": {"city": "Ulm"}}, "place.zip is missing, and the schema says NOT NULL"),
        ({"place": [1]}, "place is a list"),
    ],
)
def test_a_row_that_does_not_fit_names_the_field(columns: dict[str, object], text: str) -> None:
    found = problem(({"id": "x"} if columns else {}) | columns, FIELDS)
    assert found is not None
    assert found.startswith(text)


def test_a_row_that_fits() -> None:
    fitting = {
        "id": "x", "n": -7, "big": 2**62, "price": "999.99", "at": "2026-01-01T00:00:00.123Z", "day": "2026-01-01",
        "ok": False, "raw": "aGk=", "tags": ["a", None], "scores": {"a": 1, "b": 2.5}, "place": {"zip": 1}, "more": [],
    }  # fmt: skip
    assert problem(fitting, FIELDS) is None
    assert problem({"id": "x", "n": None}, FIELDS) is None


def test_names_that_the_schema_does_not_have_are_told_up_to_a_limit() -> None:
    assert unread([{"id": "x", "m": 1}, {"contry": 1, "place": {"zap": 1}}], FIELDS) == ["contry", "m"]
    assert unread([{"id": "x"}], FIELDS) == []
    assert len(unread([dict.fromkeys(map(str, range(1000)))], FIELDS)) == MAX_UNREAD


@pytest.fixture
def server(store: ViewStore) -> Iterator[Served]:
    with served(store) as server:
        yield server


def test_without_a_broker_there_is_nowhere_to_post(server: Served) -> None:
    answer = server.client.post("/topics/orders", json={"a": 1})
    assert (answer.status_code, answer.json()["error"]) == (
        503, "no broker is given: start with --broker kafka://HOST:PORT",
    )  # fmt: skip
