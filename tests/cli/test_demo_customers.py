"""The demo's customers and sensors: what they do, and what the pipelines can rely on."""

from __future__ import annotations

import doctest
from collections import Counter
from datetime import datetime
from random import Random

import pytest

from headwater.app import Topic, load
from headwater.cli.demo import customers
from headwater.cli.demo.customers import Event, Shop
from headwater.cli.demo.show import APP

START = 1_800_000_000.0
TIMES = {"searches": "searched_at", "clicks": "clicked_at", "orders": "placed_at", "payments": "paid_at"}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Five minutes of the shop, taken every 50 ms."""
    shop = Shop(Random(5), START, rate=20)
    return [event for tick in range(1, 6000) for event in shop.until(START + tick / 20)]


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_events_arrive_in_time_and_none_twice(events: list[Event]) -> None:
    assert [event.due for event in events] == sorted(event.due for event in events)
    orders = [event.key for event in events if event.topic == "orders"]
    assert len(orders) == len(set(orders)) > 100


def test_the_rate_is_as_asked_for(events: list[Event]) -> None:
    assert 5000 < Counter(event.topic for event in events)["searches"] < 7000


def test_every_event_fits_its_topic(events: list[Event]) -> None:
    app = load(APP)
    for event in events:
        topic = app.definitions[event.topic]
        assert isinstance(topic, Topic)
        assert list(event.value) == [field.name for field in topic.fields]
        assert event.value[topic.key[0]] == event.key


def test_events_are_out_of_order_but_not_late(events: list[Event]) -> None:
    app = load(APP)
    unordered = 0
    for name, column in TIMES.items():
        topic = app.definitions[name]
        assert isinstance(topic, Topic)
        high = 0.0
        for event in events:
            if event.topic == name:
                at = seconds(event.value[column])
                unordered += at < high
                assert at >= high - topic.lateness_ms / 1000
                high = max(high, at)
    assert unordered > 100


def test_some_orders_are_never_paid(events: list[Event]) -> None:
    count = Counter(event.topic for event in events)
    assert 0.8 < count["payments"] / count["orders"] < 0.95


def test_clocks_of_sensors_are_wrong_and_can_be_corrected(events: list[Event]) -> None:
    readings = [event.value for event in events if event.topic == "readings"]
    errors = {
        reading["sensor"]: seconds(reading["sent"]) - seconds(reading["received"]) for reading in readings
    }
    assert len(errors) == 9
    assert all(abs(error) > 50 for error in errors.values())
    for reading in readings:
        occurred, sent, received = (seconds(reading[name]) for name in ("occurred", "sent", "received"))
        corrected = occurred + received - sent
        assert START - 0.1 < corrected <= received


def test_the_same_random_numbers_make_the_same_events() -> None:
    def some() -> list[Event]:
        shop = Shop(Random(1), START, rate=10)
        return list(shop.until(START + 10))

    assert some() == some()


def test_examples() -> None:
    assert doctest.testmod(customers).failed == 0
