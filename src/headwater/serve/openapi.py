"""`/openapi.json`: every route that is served, described in OpenAPI 3.1.

The routes say what there is: one that is described nowhere below still appears, with the first line of its handler's
docstring. `PIECES` adds, by method and path, what a handler takes and how it answers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from headwater import __version__
from headwater.serve.access import role_for
from headwater.serve.openapi_pieces import ERROR, PIECES, SCHEMAS, WEBSOCKET

__all__ = ["OpenApi", "document"]

_PAGE_FILES = ("/", "/headwater.js")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


class OpenApi:
    """The handler of `/openapi.json`, which describes the other routes and itself."""

    def __init__(self, others: Sequence[BaseRoute]) -> None:
        self._others = others

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/openapi.json", self.get)]

    async def get(self, request: Request) -> Response:
        """Answer with the description of the API."""
        return JSONResponse(document([*self._others, *self.routes()]), headers={"Cache-Control": "no-cache"})


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the document that describes routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        match route:
            case Route() if route.path not in _PAGE_FILES and not route.path.startswith("/page/"):
                path = _PARAMETER.sub(r"{\1}", route.path)
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    paths.setdefault(path, {})[method.lower()] = _operation(method, path, route.endpoint)
            case WebSocketRoute():
                path = _PARAMETER.sub(r"{\1}", route.path)
                paths.setdefault(path, {})["description"] = WEBSOCKET
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": __version__,
            "description": "Views, live feeds, topics, events.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(method: str, path: str, handler: Callable[..., object]) -> dict[str, Any]:
    piece = PIECES.get(f"{method} {path}", {})
    [summary, *_] = (inspect.getdoc(handler) or path).splitlines()
    role = role_for(method, path)
    operation: dict[str, Any] = {
        "summary": summary,
        "operationId": "_".join([method.lower(), *re.findall(r"\w+", path)]),
        "parameters": [*_in_path(path), *piece.get("parameters", [])],
        "responses": {
            **piece.get("responses", {"200": {"description": summary}}),
            "default": {"description": "What is wrong, and what to do.", "content": ERROR},
        },
    }
    if role is not None:
        operation["description"] = f"Where tokens are needed: one with the role {role}."
    if "body" in piece:
        operation["requestBody"] = {"required": True, "content": piece["body"]}
    return operation


def _in_path(path: str) -> list[dict[str, Any]]:
    # A name of no characters is another path.
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
