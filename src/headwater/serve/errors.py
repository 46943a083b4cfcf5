"""Refusals as a client sees them: a status, and JSON that says what is wrong and what to do.

HttpError                      any refusal that a handler raises
views.UnknownView              404
views.TokenGone, HistoryGone   410
views.ViewError                400 where a request does not fit, 503 where the store fails
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from headwater.core.errors import HeadwaterError
from headwater.views import HistoryGone, TokenGone, UnknownView, ViewError

__all__ = ["HttpError", "handlers", "refusal"]


class HttpError(HeadwaterError):
    """A request that is refused."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def refusal(error: Exception) -> Response:
    """Return the answer that tells of an error."""
    text, headers = str(error), None
    match error:
        case HttpError():
            status, headers = error.status, error.headers
        case UnknownView():
            status, text = 404, f"{error}: GET /views lists what there is"
        case TokenGone() | HistoryGone():
            status = 410
        case _:
            status = 503
    return JSONResponse({"error": text}, status, headers)


async def _answer(request: Request, error: Exception) -> Response:
    return refusal(error)


async def _no_route(request: Request, error: Exception) -> Response:
    path = request.url.path
    if getattr(error, "status_code", 404) != 405:
        text = f"there is nothing at {path}: GET /openapi.json lists what there is"
        return JSONResponse({"error": text}, 404)
    allowed = ", ".join(_allowed(request))
    text = f"{request.method} is not served at {path}: there is {allowed}"
    return JSONResponse({"error": text}, 405, {"Allow": allowed})


def _allowed(request: Request) -> list[str]:
    """Return the methods of every route at a path: Starlette tells those of the first."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


handlers = {HttpError: _answer, ViewError: _answer, 404: _no_route, 405: _no_route}
"""For Starlette's `exception_handlers`."""
