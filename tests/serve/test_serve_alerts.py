"""Alerts to a receiver that really listens: it fails, hangs, redirects, and asks to be left alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable

import pytest

from headwater.app import App
from headwater.core.errors import SettingError
from headwater.serve import alerts
from headwater.serve.channels import Receiver, receivers
from headwater.serve.webhook import check_url
from headwater.views import Delivery, Pacing, ViewStore

from .receiving import Answer, Hook, alert, until
from .serve_helpers import served


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds, three tries."""
    monkeypatch.setattr(alerts, "MAX_TRIES", 3)
    monkeypatch.setattr(
        alerts.AlertSender.__init__, "__kwdefaults__", {"first_pause": 0.02, "seconds": 1.0, "channel": None}
    )


def test_each_row_is_posted_once_and_signed(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (204, {}))
    alert(store, "fraud", 1, 2)
    with served(store, receivers=[Receiver("fraud", receiver.url, b"secret", allow_private=True)]) as server:
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
        with served(store, receivers=[Receiver("fraud", receiver.url, allow_private=True)]):
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
    with served(store, receivers=[Receiver("fraud", receiver.url, allow_private=True)]):
        until(lambda: len(receiver.requests) == 3 and store.outbox.counts("!fraud") == (0, 0))
    assert len({headers["Idempotency-Key"] for headers, _, _ in receiver.requests}) == 1


def test_retry_after_is_honoured(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda number: (429, {"Retry-After": "1"}) if number == 1 else (200, {}))
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url, allow_private=True)]):
        until(lambda: len(receiver.requests) == 2)
    assert receiver.requests[1][2] - receiver.requests[0][2] > 0.9


def test_a_message_given_up_is_kept_with_its_reason_and_can_be_sent_again(
    store: ViewStore, hook: Callable[..., Hook]
) -> None:
    receiver = hook(
        lambda number: (302, {"Location": "http://127.0.0.1:1/else"}) if number <= 3 else (200, {})
    )
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url, allow_private=True)]) as server:
        until(lambda: server.get("/alerts")["alerts"] == [{"name": "fraud", "waiting": 0, "dead": 1}])
        [dead] = server.get("/alerts/fraud/dead")["dead"]
        assert (dead["tries"], dead["row"]) == (3, {"n": 1})
        assert dead["error"] == "answered 302, a redirect to 127.0.0.1:1, which is not followed"
        assert 'headwater_alert_dead{alert="fraud"} 1' in server.client.get("/metrics").text
        assert server.client.post("/alerts/fraud/redrive").json() == {"alert": "fraud", "redriven": 1}
        until(lambda: store.outbox.counts("!fraud") == (0, 0))
        assert server.client.get("/alerts/nothing/dead").status_code == 404
    assert len(receiver.requests) == 4


def test_what_arrives_while_the_outbox_is_read_is_not_sent_again(
    store: ViewStore, hook: Callable[..., Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = store.outbox.waiting

    def slowly(view: str, limit: int) -> list[Delivery]:
        found = waiting(view, limit)
        time.sleep(0.2)
        return found

    def one_by_one(number: int) -> Answer:
        time.sleep(0.02 * number)
        return 200, {}

    monkeypatch.setattr(store.outbox, "waiting", slowly)
    receiver = hook(one_by_one)
    alert(store, "fraud", *range(4))
    with served(store, receivers=[Receiver("fraud", receiver.url, allow_private=True)]):
        until(lambda: store.outbox.counts("!fraud") == (0, 0) and len(receiver.requests) >= 4)
        time.sleep(0.5)
    assert sorted(receiver.rows()) == [0, 1, 2, 3]


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
        Receiver("slow", slow.url, allow_private=True),
        Receiver("fast", fast.url, allow_private=True),
        Receiver("away", "http://127.0.0.1:1/", allow_private=True),
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


def test_one_incident_is_one_message_and_a_summary(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (200, {}))
    pacing = Pacing(("n",), throttle=1.0)
    alert(store, "fraud", 1)
    alert(store, "fraud", 1)
    alert(store, "fraud", 2)
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url, None, pacing, allow_private=True)]):
        until(lambda: len(receiver.requests) == 3)
        until(lambda: store.outbox.quiet_until("!fraud") is None)
    first, second, summary = sorted(
        (json.loads(body) for _, body, _ in receiver.requests), key=lambda each: each.get("held", 0)
    )
    assert {first["row"]["n"], second["row"]["n"]} == {1, 2}
    assert first["group"] == first["row"]
    assert "held" not in first
    assert (summary["held"], summary["group"], summary["row"]) == (2, {"n": 1}, {"n": 1})
    assert summary["id"] not in (first["id"], second["id"])
    assert json.loads(receiver.requests[2][1]) == summary


def test_a_summary_survives_a_restart(store: ViewStore, hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (200, {}))
    target = Receiver("fraud", receiver.url, None, Pacing(throttle=1.5), allow_private=True)
    alert(store, "fraud", 1, 2, 3)
    with served(store, receivers=[target]):
        until(lambda: len(receiver.requests) == 1)
    assert store.outbox.counts("!fraud") == (1, 0)
    with served(store, receivers=[target]):
        until(lambda: len(receiver.requests) == 2)
    assert json.loads(receiver.requests[1][1])["held"] == 2


def test_a_private_receiver_is_refused_at_the_start_or_when_it_is_connected_to(
    store: ViewStore, hook: Callable[..., Hook]
) -> None:
    for url in ("http://127.0.0.1/x", "https://localhost/x", "http://[::1]/", "https://169.254.169.254/"):
        with pytest.raises(SettingError, match="no public address: start with --allow-private-webhooks"):
            check_url(url)
        check_url(url, allow_private=True)
    receiver = hook(lambda _: (200, {}))
    alert(store, "fraud", 1)
    with served(store, receivers=[Receiver("fraud", receiver.url)]):
        until(lambda: store.outbox.counts("!fraud") == (0, 1))
    [dead] = store.outbox.dead("!fraud")
    assert "127.0.0.1 is at 127.0.0.1, which is no public address" in (dead.error or "")
    assert receiver.requests == []


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hush" not in repr(Receiver("fraud", "https://hooks.example/", b"hush"))
    with pytest.raises(SettingError) as refused:
        check_url("https://ann:hush@hooks.example/")
    assert "hush" not in str(refused.value)
