"""The figures of running captures, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.capture.runner import Progress
from headwater.core.exposition import CONTENT_TYPE, Page

__all__ = ["exposition", "serve_metrics"]


def exposition(captures: Mapping[str, Progress]) -> bytes:
    """Return the figures of captures, by name."""
    page = Page()

    def family(name: str, kind: str, text: str, value: Any) -> None:
        page.family(
            f"headwater_capture_{name}",
            kind,
            text,
            [({"capture": capture}, value(progress)) for capture, progress in captures.items()],
        )

    family("rows_total", "counter", "Changes and rows of snapshots that were published.", lambda p: p.rows)
    family(
        "records_total", "counter", "Records that were published, tombstones among them.", lambda p: p.records
    )
    family(
        "transactions_total", "counter", "Kafka transactions that were committed.", lambda p: p.transactions
    )
    family(
        "retries_total", "counter", "Tries after an error that may be over in a moment.", lambda p: p.retries
    )
    family(
        "lag_seconds",
        "gauge",
        "From the last change's commit in the database to that of its record.",
        lambda p: p.lag_seconds(),
    )
    family(
        "up",
        "gauge",
        "1 while the database is followed, 0 while another try is waited for.",
        lambda p: int(p.state in ("snapshot", "streaming")),
    )
    return page.encode()


def serve_metrics(address: tuple[str, int], captures: Mapping[str, Progress]) -> ThreadingHTTPServer:
    """Answer `GET /metrics` and `GET /health` in a thread; `shutdown` ends it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE, exposition(captures))
            elif self.path == "/health":
                well = all(progress.state != "waiting" for progress in captures.values())
                said = "\n".join(p.problem for p in captures.values() if p.problem) or "ok"
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
