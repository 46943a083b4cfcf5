"""Alerts to browsers: every page that looks sees each message once, also after it was away."""

from __future__ import annotations

import asyncio

from headwater.serve.alert_feed import BrowserChannel
from headwater.serve.channels import Receiver
from headwater.serve.message import Message
from headwater.views import Delivery, Pacing, ViewStore

from .receiving import alert, until
from .serve_helpers import events, served

BROWSER = Receiver("fraud", "browser:")


def test_pages_see_what_comes_and_resume(store: ViewStore) -> None:
    alert(store, "fraud", 1)
    with served(store, receivers=[BROWSER]) as server:
        until(lambda: store.outbox.counts("!fraud") == (0, 0))
        with (
            server.client.stream("GET", "/alerts/feed") as first,
            server.client.stream("GET", "/alerts/feed") as second,
        ):
            assert first.headers["content-type"].startswith("text/event-stream")
            following, other = events(first), events(second)
            assert (next(following).name, next(other).name) == ("ready", "ready")
            alert(store, "fraud", 2)
            seen = next(following)
            assert (seen.name, seen.data["alert"], seen.data["row"]) == ("alert", "fraud", {"n": 2})
            assert next(other) == seen
        assert seen.id is not None
        alert(store, "fraud", 3)
        headers = {"Last-Event-ID": seen.id}
        with server.client.stream("GET", "/alerts/feed", headers=headers) as again:
            following = events(again)
            assert next(following).id == seen.id
            assert next(following).data["row"] == {"n": 3}
        assert [view["name"] for view in server.get("/views")["views"]] == ["!fraud", "sales"]
        assert server.client.get("/alerts/feed", params={"since": "nonsense"}).status_code == 400


def test_an_incident_is_one_notification(store: ViewStore) -> None:
    target = Receiver("fraud", "browser:", pacing=Pacing(throttle=0.5))
    with served(store, receivers=[target]) as server, server.client.stream("GET", "/alerts/feed") as answer:
        following = events(answer)
        assert next(following).name == "ready"
        alert(store, "fraud", 1, 2, 3)
        assert next(following).data["row"] == {"n": 1}
        summary = next(following).data
        assert (summary["held"], summary["row"]) == (2, {"n": 3})


def test_a_message_that_is_sent_twice_is_seen_once(store: ViewStore) -> None:
    """As when the server dies before it has noted that the message was sent."""
    channel = BrowserChannel(store)
    for token in (1, 1, 2):
        message = Message(f"id-{token}", "fraud", (Delivery(token, "key", '{"n": 1}'),))
        assert asyncio.run(channel.send(message)).error is None
    assert store.count("@alerts") == store.token("@alerts") == 2


def test_without_a_browser_alert_the_feed_is_there_and_silent(store: ViewStore) -> None:
    with served(store) as server, server.client.stream("GET", "/alerts/feed") as answer:
        assert next(events(answer)).name == "ready"
