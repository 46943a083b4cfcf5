"""`/indexes`: searches over HTTP, and what is refused."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from headwater import App
from headwater.app.schema import parse
from headwater.derived.change import Position, Row
from headwater.derived.decode import parse_object
from headwater.derived.index import SearchIndex
from headwater.serve.errors import handlers
from headwater.serve.index_routes import Indexes

COLUMNS = "id bigint, title string, year int"


@pytest.fixture
def client(tmp_path: Path) -> httpx.AsyncClient:
    app = App("library")
    app.table("books", COLUMNS, key="id")
    app.index("titles", of="books", text="title")
    app.index("empty", of="books", text="title")
    store = SearchIndex("titles", tmp_path / "titles", parse(COLUMNS), ["title"])
    texts = [
        f'{{"id":{n},"price":1{n}e{999 * n},"title":"the quick fox {"fox " * n}","year":{2000 + n}}}'
        for n in range(5)
    ]
    rows = {str(n): store.take(Row(text, parse_object(text))) for n, text in enumerate(texts)}
    store.apply(rows, None, Position("books", shape=store.shape))
    site = Starlette(routes=Indexes(app, tmp_path).routes(), exception_handlers=handlers)
    return httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://test")


async def test_a_search(client: httpx.AsyncClient) -> None:
    said = (await client.get("/indexes/titles", params={"q": "fox year:[2002 TO *]", "limit": "2"})).json()
    assert (said["index"], said["total"], len(said["hits"])) == ("titles", 5, 2)
    best = said["hits"][0]
    assert best["key"] == "4"
    assert best["row"]["title"].count("fox") == 5
    assert best["score"] >= said["hits"][1]["score"] > 0
    rest = (
        await client.get("/indexes/titles", params={"q": "year:>2001", "offset": "1", "limit": "10"})
    ).json()
    assert (rest["total"], len(rest["hits"])) == (3, 2)


async def test_rows_come_as_they_were_written(client: httpx.AsyncClient) -> None:
    answer = await client.get("/indexes/titles", params={"q": "year:[2000 TO 2001]"})
    assert '"price":10e0,' in answer.text
    assert '"price":11e999,' in answer.text
    assert {hit["key"] for hit in answer.json()["hits"]} == {"0", "1"}


async def test_the_indexes_are_listed(client: httpx.AsyncClient) -> None:
    found = (await client.get("/indexes")).json()["indexes"]
    assert found[0] == {"index": "titles", "of": "books", "text": ["title"]}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/indexes/nobody?q=x", 404, "there are empty, titles"),
        ("/indexes/titles?q=nobody:x", 400, "does not read as a search"),
        (f"/indexes/titles?q={'(' * 9999}", 400, "at most 10000 letters and 500 parentheses"),
        (f"/indexes/titles?q={'x' * 10_001}", 400, "at most 10000 letters and 500 parentheses"),
        ("/indexes/titles?limit=1001", 400, "limit=1001 does not fit"),
        ("/indexes/titles?offset=-1", 400, "offset=-1 does not fit"),
        ("/indexes/empty?q=x", 503, "headwater derived run"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, path: str, status: int, said: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
