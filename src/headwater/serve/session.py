"""`/session`: a browser shows its token once, and gets a cookie that scripts cannot read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.serve.access import Access
from headwater.serve.errors import HttpError
from headwater.serve.guard import COOKIE, bearer

__all__ = ["Session"]

_SECONDS = 30 * 24 * 3600


class Session:
    """The handlers of `/session`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [
            Route("/session", self.show, methods=["GET"]),
            Route("/session", self.begin, methods=["POST"]),
            Route("/session", self.end, methods=["DELETE"]),
        ]

    async def show(self, request: Request) -> Response:
        """Answer with whether a token is needed, and the roles of the one that came."""
        holder = self._access.holder(bearer(request) or "")
        return JSONResponse(
            {
                "required": self._access.required,
                "name": holder.name if holder else None,
                "roles": sorted(holder.roles) if holder else [],
            },
            headers={"Cache-Control": "no-store"},
        )

    async def begin(self, request: Request) -> Response:
        """Give a browser that shows a token a cookie."""
        token = bearer(request)
        holder = self._access.holder(token) if token else None
        if token is None or holder is None:
            text = "this token is not known: show one that `headwater tokens add` made"
            raise HttpError(401, text, {"WWW-Authenticate": "Bearer"})
        answer = JSONResponse({"name": holder.name, "roles": sorted(holder.roles)})
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, token, max_age=_SECONDS, httponly=True, samesite="strict", secure=secure)
        return answer

    async def end(self, request: Request) -> Response:
        """Take the cookie back."""
        answer = JSONResponse({})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer
