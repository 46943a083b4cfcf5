"""What every derived store does; each one's test inherits it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headwater.app.schema import parse
from headwater.derived.change import Position, Row
from headwater.derived.decode import parse_object
from headwater.derived.errors import Behind, Switched
from headwater.derived.store import Store

COLUMNS = parse("id bigint, title string, city string, price decimal(10,2), placed timestamp, paid boolean")

Opening = Callable[[], Store]


def row_of(number: int, title: str = "a title") -> Row:
    text = json.dumps(
        {
            "id": number,
            "title": title,
            "city": "New York" if number % 2 else "Köln",
            "price": number / 4,
            "placed": f"2026-01-{number % 28 + 1:02}T10:00:00Z",
            "paid": number % 3 == 0,
            "more": [number],
        },
        ensure_ascii=False,
    )
    return Row(text, parse_object(text))


def put(store: Store, rows: Mapping[int, Row | None], offset: int, **partitions: int) -> None:
    base = store.position()
    position = (base or Position("articles", "id", shape=store.shape)).moved({0: offset})
    store.apply({str(n): row and store.take(row) for n, row in rows.items()}, base, position)


def held(store: Store) -> dict[str, Any]:
    """Return what a store holds, in a form that is the same for all of them."""
    found: dict[str, Any] = {}
    for key, row in store.rows():
        values = [parse_object(row).get(field.name) for field in COLUMNS] if isinstance(row, str) else row
        found[key] = [_plain(value) for value in values]
    return found


def wanted(rows: Mapping[int, Row | None]) -> dict[str, Any]:
    return {str(n): [_plain(row.values[field.name]) for field in COLUMNS] for n, row in rows.items() if row}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return float(value)
    assert not isinstance(value, date)
    return value


class StoreContract:
    """Every store holds what it was told, with its position."""

    @pytest.fixture
    def opening(self) -> Opening:
        raise AssertionError("each store's test has its own")

    def test_an_empty_store_has_no_position(self, opening: Opening) -> None:
        store = opening()
        assert (store.position(), store.count(), held(store)) == (None, 0, {})

    def test_it_holds_the_last_of_each_row(self, opening: Opening) -> None:
        draw = random.Random(7)
        rows: dict[int, Row | None] = {}
        store = opening()
        for turn in range(6):
            changes = {
                draw.randrange(60): row_of(draw.randrange(60)) if draw.random() < 0.7 else None
                for _ in range(40)
            }
            changes = {n: row and row_of(n, f"turn {turn}") for n, row in changes.items()}
            rows |= changes
            put(store, changes, turn + 1)
            if turn == 3:
                store.close()
                store = opening()
        assert held(store) == wanted(rows)
        assert store.count() == len(wanted(rows))
        position = store.position()
        assert position is not None
        assert position.offsets == {0: 6}

    def test_a_key_of_any_kind(self, opening: Opening) -> None:
        store = opening()
        keys = ["", "a b", 'x"y', "k" * 3000, "k" * 3001, "ключ", "-1", "a:b AND c"]
        position = Position("articles", shape=store.shape)
        store.apply({key: store.take(row_of(1)) for key in keys}, None, position)
        store.apply({key: None for key in keys if key != "k" * 3000}, position, position.moved({0: 2}))
        assert store.count() == 1

    def test_two_who_follow_do_no_harm(self, opening: Opening) -> None:
        store = opening()
        put(store, {1: row_of(1)}, 1)
        base = store.position()
        assert base is not None
        put(store, {1: row_of(1, "newer")}, 2)
        store.close()
        late = opening()
        with pytest.raises(Switched):
            late.apply({"1": late.take(row_of(1, "older"))}, base, base.moved({0: 2}))
        late.close()
        assert held(opening()) == wanted({1: row_of(1, "newer")})

    def test_it_is_replaced_at_once(self, opening: Opening) -> None:
        store = opening()
        put(store, {1: row_of(1), 2: row_of(2)}, 2)
        beside = store.beside()
        put(beside, {3: row_of(3)}, 1)
        assert held(store) == wanted({1: row_of(1), 2: row_of(2)})
        with pytest.raises(Behind):
            store.switch(beside)
        put(beside, {4: row_of(4)}, 2)
        base = store.position()
        store.switch(beside)
        assert held(opening()) == wanted({3: row_of(3), 4: row_of(4)})
        # Whoever followed the old one cannot write into the new one without knowing.
        assert base is not None
        newer = base.moved({0: 3})
        put(store, {5: row_of(5)}, 3)
        with pytest.raises(Switched):
            store.apply({"9": store.take(row_of(9))}, base, newer)
        assert held(store) == wanted({3: row_of(3), 4: row_of(4), 5: row_of(5)})

    def test_what_was_left_of_a_rebuild_is_gone(self, opening: Opening) -> None:
        store = opening()
        put(store, {1: row_of(1)}, 1)
        left = store.beside()
        put(left, {7: row_of(7)}, 1)
        left.close()
        again = store.beside()
        assert (again.position(), again.count()) == (None, 0)
        put(again, {}, 1)
        store.switch(again)
        assert held(opening()) == {}
