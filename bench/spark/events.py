"""Events by key, and flats with the searches for them: the same ones each time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

from confluent_kafka import Producer

from bench.clients import QUIET, create_topics, require_delivered

FEW_KEYS = "few-keys"
MANY_KEYS = "many-keys"
SCHEMA = "k string, v bigint"
PARTITIONS = 4
BATCH = 100_000
KEY_STEP = 7_919
FLATS = "flats"
FLATS_SCHEMA = "id int, city string, rent int, rooms int, balcony boolean, text string"
SEARCHES = "searches"
ORDERS = "orders-of-users"
ORDERS_SCHEMA = "order_id bigint, user_id bigint, amount double"
USERS = "users"
USERS_SCHEMA = "user_id bigint, country string, name string"
WORDS = [f"word{number}" for number in range(500)]
_FLUSH_SECONDS = 120.0
_POLL_EVERY = 1_000


def fill_keys(bootstrap: str, topic: str, keys: int, count: int, *, all_first: bool = False) -> int:
    """Write events of so many keys, each as often as the others; before them, if asked, one of every key."""
    first = keys if all_first else 0
    numbers = ((n, n) if n < first else (n, (n - first) * KEY_STEP % keys) for n in range(first + count))
    return _fill(bootstrap, topic, ((str(key), f'{{"k":"{key}","v":{n}}}') for n, key in numbers))


def fill_flats(bootstrap: str, flats: int, searches: int) -> int:
    """Write searches and flats; return how many records those are."""
    rng = random.Random(7)
    stored = ((f"search {n}", json.dumps({"where": _search(rng)})) for n in range(searches))
    offered = ((str(n), json.dumps(_flat(rng, n))) for n in range(flats))
    return _fill(bootstrap, SEARCHES, stored) + _fill(bootstrap, FLATS, offered)


def fill_orders(bootstrap: str, users: int, orders: int) -> int:
    """Write orders, all users, and changes of them, a tenth as many as orders; return how many records those are."""
    placed = (
        (str(n), f'{{"order_id":{n},"user_id":{n * KEY_STEP % users},"amount":{n % 400}.25}}')
        for n in range(orders)
    )
    # As many users as fill the partitions evenly, so that all changes of one lie in one of them.
    changed = (
        (str(n % users), f'{{"user_id":{n % users},"country":"c{n % 50}","name":"user {n % users}, {n}"}}')
        for n in range(users + orders // 10)
    )
    return _fill(bootstrap, ORDERS, placed) + _fill(bootstrap, USERS, changed)


def _search(rng: random.Random) -> dict[str, object]:
    rent = rng.randrange(300, 3000)
    return {
        "all": [
            {"field": "city", "=": f"city {rng.randrange(50)}"},
            {"field": "rent", "between": [rent, rent + 60]},
            {"field": "rooms", "=": rng.randint(1, 5)},
            {"field": "text", "words": rng.choice(WORDS)},
        ]
    }


def _flat(rng: random.Random, number: int) -> dict[str, object]:
    return {
        "id": number,
        "city": f"city {rng.randrange(50)}",
        "rent": rng.randrange(300, 3000),
        "rooms": rng.randint(1, 5),
        "balcony": rng.random() < 0.5,
        "text": " ".join(rng.choices(WORDS, k=30)),
    }


def _fill(bootstrap: str, topic: str, records: Iterable[tuple[str, str]]) -> int:
    create_topics(bootstrap, [topic], PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": QUIET}
    )
    number = -1
    for number, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    require_delivered(producer.flush(_FLUSH_SECONDS))
    return number + 1
