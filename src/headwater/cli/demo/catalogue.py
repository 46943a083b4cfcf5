"""The shop's catalogue, in a SQLite file of its own that change data capture follows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

__all__ = ["Catalogue"]

_PRICES = {"kettle": 35.0, "teapot": 28.0, "mug": 9.0, "spoon": 3.5, "samovar": 180.0}
_BUSY_SECONDS = 5.0


class Catalogue:
    """What the shop sells, and for how much."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Make the file, unless it is there."""
        with closing(self._connect()) as shop, shop:
            shop.execute("PRAGMA journal_mode=WAL")
            shop.execute("CREATE TABLE IF NOT EXISTS products (terms TEXT PRIMARY KEY, price REAL NOT NULL)")
            shop.executemany("INSERT OR IGNORE INTO products VALUES (?, ?)", _PRICES.items())

    def reprice(self, random: Random) -> None:
        """Give one of the products another price."""
        terms = random.choice(list(_PRICES))
        price = round(_PRICES[terms] * random.uniform(0.7, 1.3), 2)
        with closing(self._connect()) as shop, shop:
            shop.execute("UPDATE products SET price = ? WHERE terms = ?", (price, terms))

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
