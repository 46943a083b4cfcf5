"""The page at `/` and its style and scripts, which are all of it: nothing is loaded from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["Page"]

_FILES = {
    "/": ("index.html", "text/html"),
    "/headwater.js": ("headwater.js", "text/javascript"),
    "/page/style.css": ("style.css", "text/css"),
    "/page/main.js": ("main.js", "text/javascript"),
    "/page/state.js": ("state.js", "text/javascript"),
    "/page/view.js": ("view.js", "text/javascript"),
    "/page/chart.js": ("chart.js", "text/javascript"),
    "/page/format.js": ("format.js", "text/javascript"),
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Page:
    """The handlers of the page."""

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route(path, self.file) for path in _FILES]

    async def file(self, request: Request) -> Response:
        """Answer with a file of the page."""
        name, kind = _FILES[request.url.path]
        text = (files("headwater.serve") / "web" / name).read_text()
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return Response(text, media_type=kind, headers=headers)
