"""Alerts to a receiver that really listens: it fails, hangs, redirects, and asks to be left alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headwater.app import App
from headwater.core.errors import SettingError
from headwater.serve import alerts
from headwater.serve.alerts import Receiver, receivers
from headwater.serve.webhook import check_url
from headwater.views import Change, Delivery, ViewDefinition, ViewStore

from .serve_helpers import served

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


@pytest.fixture
def hook() -> Iterator[Callable[[Callable[[int], Answer]], Hook]]:
    made: list[Hook] = []

    def make(answer: Callable[[int], Answer]) -> Hook:
        made.append(Hook(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds, three tries."""
    monkeypatch.setattr(alerts, "MAX_TRIES", 3)
    monkeypatch.setattr(alerts.AlertSender.__init__, "__kwdefaults__", {"first_pause": 0.02, "seconds": 1.0})


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


def test_each_row_is_posted_once_and_signed(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (204, {}))
    alert(store, "fraud", 1, 2)
    with served(store, receivers=[Receiver("fraud", receiver.url, b"secret")]) as server:
        until(lambda: len(receiver.requests) == 2)
        alert(store, "fraud", 3)
        until(lambda: len(receiver.requests) == 3 and server.get("/alerts")["alerts"][0]["waiting"] == 0)
        assert "headwater_alert_sent_total" in server.client.get("/metrics").text
    assert sorted(receiver.rows()) == [1, 2, 3]
    for headers, body, _ in receiver.requests:
        at, signature = (part.partition("=")[2] for part in headers["Headwater-Signature"].split(","))
        assert signature == hmac.new(b"secret", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        assert abs(int(at) - time.time()) < 60
        assert headers["Idempotency-Key"] == json.loads(body)["id"]
        assert json.loads(body)["alert"] == "fraud"
    assert len({headers["Idempotency-Key"] for headers, _, _ in receiver.requests}) == 3


def test_a_restart_sends_nothing_again(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (200, {}))
    for number in (1, 2):
        alert(store, "fraud", number)
        with served(store, receivers=[Receiver("fraud", receiver.url)]):
            until(
                lambda: (
                    store.outbox.counts("!fraud") == (0, 0)
                    and store.token("!fraud") == len(receiver.requests)
                )
            )
    assert receiver.rows() == [1, 2]
    assert "Headwater-Signature" not in receiver.requests[0][0]


def test_a_failing_receiver_is_tried_again_with_the_same_key(
    store: ViewStore, hook: Callable[..., Hook]
) -> None:
    receiver = hook(lambda number: (500, {}) if number < 3 else (200, {}))
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url)]):
        until(lambda: len(receiver.requests) == 3 and store.outbox.counts("!fraud") == (0, 0))
    assert len({headers["Idempotency-Key"] for headers, _, _ in receiver.requests}) == 1


def test_retry_after_is_honoured(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda number: (429, {"Retry-After": "1"}) if number == 1 else (200, {}))
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url)]):
        until(lambda: len(receiver.requests) == 2)
    assert receiver.requests[1][2] - receiver.requests[0][2] > 0.9


def test_a_message_given_up_is_kept_with_its_reason_and_can_be_sent_again(
    store: ViewStore, hook: Callable[..., Hook]
) -> None:
    receiver = hook(
        lambda number: (302, {"Location": "http://127.0.0.1:1/else"}) if number <= 3 else (200, {})
    )
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url)]) as server:
        until(lambda: server.get("/alerts")["alerts"] == [{"name": "fraud", "waiting": 0, "dead": 1}])
        [dead] = server.get("/alerts/fraud/dead")["dead"]
        assert (dead["tries"], dead["row"]) == (3, {"n": 1})
        assert dead["error"] == "answered 302, a redirect to 127.0.0.1:1, which is not followed"
        assert 'headwater_alert_dead{alert="fraud"} 1' in server.client.get("/metrics").text
        assert server.client.post("/alerts/fraud/redrive").json() == {"alert": "fraud", "redriven": 1}
        until(lambda: store.outbox.counts("!fraud") == (0, 0))
        assert server.client.get("/alerts/nothing/dead").status_code == 404
    assert len(receiver.requests) == 4


def test_a_receiver_that_hangs_holds_up_neither_others_nor_the_end(
    store: ViewStore, hook: Callable[..., Hook]
) -> None:
    release = threading.Event()

    def hang(_: int) -> Answer:
        release.wait(20)
        return 200, {}

    def tried(view: str) -> list[Delivery]:
        return [*store.outbox.waiting(view), *store.outbox.dead(view)]

    slow, fast = hook(hang), hook(lambda _: (200, {}))
    alert(store, "slow", *range(10))
    alert(store, "fast", *range(10))
    targets = [
        Receiver("slow", slow.url),
        Receiver("fast", fast.url),
        Receiver("away", "http://127.0.0.1:1/"),
    ]
    with served(store, receivers=targets):
        until(lambda: len(fast.requests) == 10)
        until(lambda: any("no answer within 1 s" in (d.error or "") for d in tried("!slow")))
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert len(slow.requests) <= 8
    release.set()


def test_where_alerts_go_is_checked_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="write https://HOST/PATH"):
        check_url("ftp://example/x")
    app = App("shop")
    app.topic("orders", "id string")

    @app.alert(to="https://hooks.example/fraud", secret_env="FRAUD_SECRET")
    def fraud(orders: object) -> object:
        return orders

    with pytest.raises(SettingError, match="signed with FRAUD_SECRET: set it in the environment"):
        receivers(app)
    monkeypatch.setenv("FRAUD_SECRET", "hush")
    assert receivers(app) == [Receiver("fraud", "https://hooks.example/fraud", b"hush")]
