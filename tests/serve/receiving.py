"""A receiver of webhooks that really listens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headwater.views import Change, ViewDefinition, ViewStore

Answer = tuple[int, dict[str, str]]


class Hook:
    """A receiver; `answer` decides, by the number of the request, what it says."""

    def __init__(self, answer: Callable[[int], Answer]) -> None:
        self.requests: list[tuple[dict[str, str], bytes, float]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.requests.append((dict(self.headers), body, time.monotonic()))
                status, headers = answer(len(hook.requests))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?a=b"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def rows(self) -> list[int]:
        return [json.loads(body)["row"]["n"] for _, body, _ in self.requests]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def alert(store: ViewStore, name: str, *numbers: int) -> None:
    store.define(ViewDefinition(f"!{name}", ("id",)))
    epoch = store.epoch(name) + 1
    store.commit(
        name, epoch, f"!{name}", [Change(f"{name}/{epoch}/{n}", json.dumps({"n": n})) for n in numbers]
    )


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
