"""`/indexes`: the search indexes of derived stores, searched."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.app import App, Index
from headwater.derived.errors import DerivedError
from headwater.derived.search import MAX_HITS, BadQuery, Found, Search
from headwater.serve.errors import HttpError
from headwater.serve.parameters import count

__all__ = ["Indexes"]

_MOST_OFFSET = 100_000


class Indexes:
    """The handlers of `/indexes`."""

    def __init__(self, app: App | None, directory: Path) -> None:
        declared = app.derived() if app is not None else []
        self._definitions = {each.name: each for each in declared if isinstance(each, Index)}
        self._directory = directory
        self._opened: dict[str, Search] = {}

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/indexes", self.list), Route("/indexes/{name}", self.search)]

    async def list(self, request: Request) -> Response:
        """Answer with the indexes."""
        found = [
            {"index": each.name, "of": each.of, "text": [*each.text]} for each in self._definitions.values()
        ]
        return JSONResponse({"indexes": found})

    async def search(self, request: Request) -> Response:
        """Answer with the rows that `q` finds, best first."""
        name: str = request.path_params["name"]
        if name not in self._definitions:
            known = ", ".join(sorted(self._definitions)) or "none"
            raise HttpError(404, f"there is no index {name} here; there are {known}")
        given = request.query_params
        query, limit = given.get("q", ""), count(given, "limit", 10, most=MAX_HITS)
        offset = count(given, "offset", 0, most=_MOST_OFFSET)
        try:
            found = await asyncio.to_thread(self._search, name, query, limit, offset)
        except BadQuery as error:
            raise HttpError(400, str(error)) from None
        except DerivedError as error:
            raise HttpError(503, str(error), {"Retry-After": "1"}) from None
        # Rows as they were written: their numbers may have more digits than a double, or be no double.
        hits = ",".join(
            f'{{"key":{json.dumps(hit.key)},"score":{hit.score},"row":{hit.text}}}' for hit in found.hits
        )
        body = f'{{"index":{json.dumps(name)},"total":{found.total},"hits":[{hits}]}}'
        return Response(body, media_type="application/json")

    def _search(self, name: str, query: str, limit: int, offset: int) -> Found:
        search = self._opened.get(name)
        if search is None:
            search = self._opened.setdefault(name, Search(self._directory / name))
        return search.find(query, limit=limit, offset=offset)
