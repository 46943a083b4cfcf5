"""The figures of workers over HTTP, for Prometheus, and whether all is well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.core.exposition import CONTENT_TYPE
from headwater.workers.worker import Progress

__all__ = ["serve_metrics"]


def serve_metrics(
    address: tuple[str, int], progress: Mapping[str, Progress], exposition: Callable[[], bytes]
) -> ThreadingHTTPServer:
    """Answer `GET /metrics` and `GET /health` in a thread; `shutdown` ends it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE, exposition())
            elif self.path == "/health":
                well = all(each.state != "waiting" for each in progress.values())
                said = "\n".join(each.problem for each in progress.values() if each.problem) or "ok"
                self._answer(200 if well else 503, "text/plain; charset=utf-8", f"{said}\n".encode())
            else:
                self._answer(404, "text/plain; charset=utf-8", b"there are /metrics and /health\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a scrape every few seconds is no news."""

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, name="headwater-metrics", daemon=True).start()
    return server
