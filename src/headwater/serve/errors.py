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
    match error:
        case HttpError():
            status, headers = error.status, error.headers
        case UnknownView():
            status, headers = 404, None
        case TokenGone() | HistoryGone():
            status, headers = 410, None
        case _:
            status, headers = 503, None
    return JSONResponse({"error": str(error)}, status, headers)


async def _answer(request: Request, error: Exception) -> Response:
    return refusal(error)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = (
        f"{request.method} is not served at {request.url.path}" if status == 405 else "there is nothing here"
    )
    headers = {"Allow": ", ".join(_allowed(request))} if status == 405 else None
    return JSONResponse({"error": text}, status, headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of every route at a path: Starlette tells those of the first."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


handlers = {HttpError: _answer, ViewError: _answer, 404: _no_route, 405: _no_route}
"""For Starlette's `exception_handlers`."""
