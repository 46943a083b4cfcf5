"""Operators on time need an event time; whatever may be right is let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app import AppError, Location, load

from .conftest import Write

HEAD = """\
import re
import headwater as hw
from headwater import App

app = App("shop")
app.topic("orders", "id string, placed_at timestamp")
app.topic("clicks", "id string, at timestamp, seen timestamp")
app.topic("timed", "id string, at timestamp", event_time="at")
app.topic("moved", "id string, at timestamp", event_time="at", late="correct", corrections="1 hour")

"""
LINE = HEAD.count("\n") + 1

REFUSED = {
    "through the module": (
        "@app.view(key='id')\ndef f(orders):\n    return orders.transform(hw.tumbling('placed_at', '1 minute'))",
        2,
        "f uses tumbling, which needs an event time, and orders has none; "
        'declare orders (shop.py:6) with event_time="placed_at", lateness="1 minute"',
    ),
    "by name": (
        "from headwater import session\n\n@app.view(key='id')\n"
        "def f(clicks):\n    return session('at', '1 minute')(clicks)",
        4,
        "f uses session, which needs an event time, and clicks has none; "
        'declare clicks (shop.py:7) with event_time="COLUMN", lateness="1 minute"',
    ),
    "under another name": (
        "from headwater import hopping as h\n@app.alert(to='http://h/x')\ndef f(orders):\n    return h(orders)",
        3,
        "f uses hopping, which needs an event time, and orders has none",
    ),
    "imported where it is used": (
        "@app.view(key='id')\ndef f(orders):\n    from headwater import tumbling\n    return tumbling(orders)",
        2,
        "f uses tumbling, which needs an event time, and orders has none",
    ),
    "in a nested function": (
        "@app.view(key='id')\ndef f(orders):\n    return orders.transform(\n        lambda df: hw.tumbling(df))",
        3,
        "f uses tumbling, which needs an event time, and orders has none",
    ),
    "in a helper": (
        "def helper(df):\n    return hw.tumbling(df)\n\n@app.view(key='id')\ndef f(orders):\n    return helper(orders)",
        1,
        "f uses tumbling, which needs an event time, and orders has none",
    ),
    "under a decorator": (
        "from functools import wraps\ndef plain(g):\n    @wraps(g)\n    def inner(*a, **k): return g(*a, **k)\n"
        "    return inner\n@app.view(key='id')\n@plain\ndef f(orders):\n    return hw.tumbling(orders)",
        8,
        "f uses tumbling, which needs an event time, and orders has none",
    ),
    "duplicates": (
        "@app.stream(key='id')\ndef f(orders):\n    return orders.dropDuplicatesWithinWatermark(['id'])",
        2,
        "f uses dropDuplicatesWithinWatermark, which needs an event time, and orders has none",
    ),
    "one side of a join": (
        "@app.stream(key='id')\ndef f(timed, orders):\n    return hw.join_within(timed, orders)",
        2,
        "f uses join_within, which needs an event time on both sides, and orders has none; "
        'declare orders (shop.py:6) with event_time="placed_at", lateness="1 minute"',
    ),
    "a join with itself": (
        "@app.stream(key='id')\ndef f(orders):\n    return hw.join_within(orders, orders)",
        2,
        "f uses join_within, which needs an event time, and orders has none",
    ),
    "a stream": (
        "@app.stream(key='id')\ndef s(orders):\n    return orders\n"
        "@app.view(key='id')\ndef f(s):\n    return hw.sliding(s)",
        5,
        "f uses sliding, which needs an event time, and s has none; "
        'declare s (shop.py:11) with event_time="COLUMN", lateness="1 minute"',
    ),
    "corrections of final results": (
        "@app.stream(key='window')\ndef f(moved):\n    moved = hw.tumbling(moved)\n"
        "    return moved.groupBy('window').count()",
        3,
        'f publishes final results only (mode="append"), and the late events of moved are to correct them; '
        'declare f with mode="changes", or moved (shop.py:9) with late="aside"',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_the_line_of_the_operator(case: str, write: Write) -> None:
    code, line, says = REFUSED[case]
    with pytest.raises(AppError) as refused:
        load(write(HEAD + code + "\n"))
    assert str(refused.value).startswith(f"shop.py:{LINE + line}: {says}")


FINE = {
    "a timed input": "@app.view(key='id')\ndef f(timed):\n    return hw.tumbling(timed)",
    "one timed input of two": "@app.view(key='id')\ndef f(timed, orders):\n    return hw.tumbling(timed).join(orders)",
    "both sides": "@app.stream(key='id')\ndef f(timed, moved):\n    return hw.join_within(timed, moved)",
    "three inputs, two of them joined": (
        "@app.stream(key='id')\ndef f(timed, moved, orders):\n    return hw.join_within(timed, moved).union(orders)"
    ),
    "a join with itself": "@app.stream(key='id')\ndef f(timed):\n    return hw.join_within(timed, timed)",
    "a watermark of its own": (
        "@app.view(key='id')\ndef f(orders):\n    return hw.tumbling(orders.withWatermark('placed_at', '1 minute'))"
    ),
    "a column of that name": "@app.view(key='id')\ndef f(orders):\n    return orders.select(orders.session)",
    "another's function of that name": "@app.view(key='id')\ndef f(orders):\n    return re.match('a', orders)",
    "a user's function of that name": (
        "def tumbling(df):\n    return df\n@app.view(key='id')\ndef f(orders):\n    return tumbling(orders)"
    ),
    "an attribute after the module": (
        "@app.view(key='id')\ndef f(orders):\n    x = hw\n    return orders.tumbling(x)"
    ),
    "a stream with event time": (
        "@app.stream(key='id', event_time='placed_at')\ndef s(orders):\n    return orders\n"
        "@app.view(key='id')\ndef f(s):\n    return hw.tumbling(s)"
    ),
    "corrections of changes": (
        "@app.stream(key='id', mode='changes')\ndef f(moved):\n    return hw.tumbling(moved).groupBy('window').count()"
    ),
    "corrections of rows": "@app.stream(key='id')\ndef f(moved):\n    return moved.select('id')",
    "corrections in a view": "@app.view(key='id')\ndef f(moved):\n    return moved.groupBy('id').count()",
    "no code to look at": (
        "class Callable:\n    __name__ = 'f'\n    def __call__(self, orders): return hw.tumbling(orders)\n"
        "app.view(key='id')(Callable())"
    ),
    "a variable that is assigned later": (
        "def make():\n    @app.view(key='id')\n    def f(orders):\n        return later(orders)\n"
        "    app.check()\n    later = print\nmake()"
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_fine(case: str, write: Write) -> None:
    load(write(HEAD + FINE[case] + "\n"))


def test_a_helper_in_a_file_beside_is_looked_into(write: Write) -> None:
    path = write(
        HEAD
        + "import shop_windows\n@app.view(key='id')\ndef f(orders):\n    return shop_windows.minutes(orders)\n"
    )
    helper = Path("shop_windows.py")
    helper.write_text("import headwater as hw\n\ndef minutes(df):\n    return hw.tumbling(df)\n")
    with pytest.raises(AppError, match="f uses tumbling") as refused:
        load(path)
    assert refused.value.where == Location(str(helper.resolve()), 4)
