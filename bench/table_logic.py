"""How fast the logic of lookups, joins of tables and stored searches is by itself, in one process without Spark.

    .venv/bin/python -m bench.table_logic

Figures are per second of CPU time, so that a busy machine changes them little.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from headwater.pipeline.lookups import CHANGE, EVENT, Lookup
from headwater.pipeline.searches import SearchIndex, parse
from headwater.pipeline.searches.fields import Document, Kind
from headwater.pipeline.table_joins import MaintainedJoin, Shape, Side

PEOPLE = 100_000
DEPARTMENTS = 5_000
FLATS: dict[str, Kind] = {
    "city": "text",
    "rent": "number",
    "rooms": "number",
    "balcony": "boolean",
    "text": "text",
}
WORDS = [f"word{n}" for n in range(500)]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that some work takes, and its result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def join() -> MaintainedJoin:
    """Return employees and departments, empty."""
    employees = Side("employees", ("employee", "name", "department"), ("employee",))
    departments = Side("departments", ("id", "title"), ("id",))
    return MaintainedJoin(Shape.of(employees, departments, {"department": "id"}, "inner"))


def join_tables(rng: random.Random) -> None:
    """One large department, and many small ones."""
    large = join()
    people = [(n, False, n, f"employee {n}", 1) for n in range(PEOPLE)]
    seconds, _ = timed(lambda: large.batch(people, [(0, False, 1, "Sales")]))
    print(f"join_tables  {PEOPLE} inserts into one department       {PEOPLE / seconds:10,.0f} changes/s")
    seconds, renamed = timed(lambda: large.batch(right=[(1, False, 1, "Marketing")]))
    print(f"join_tables  that department is renamed           {len(renamed) / seconds:10,.0f} results/s")
    ones = [[(PEOPLE + n, False, rng.randrange(PEOPLE), f"new {n}", 1)] for n in range(2000)]
    seconds, _ = timed(lambda: [large.batch(one) for one in ones])
    print(f"join_tables  one of its employees, a batch each   {len(ones) / seconds:10,.0f} changes/s")
    small = join()
    small.batch(
        [(n, False, n, f"employee {n}", n % DEPARTMENTS) for n in range(PEOPLE)],
        [(0, False, n, f"department {n}") for n in range(DEPARTMENTS)],
    )
    moves = [
        (PEOPLE + n, False, rng.randrange(PEOPLE), f"new {n}", rng.randrange(DEPARTMENTS))
        for n in range(30_000)
    ]
    seconds, _ = timed(lambda: [small.batch(moves[n : n + 5000]) for n in range(0, len(moves), 5000)])
    print(
        f"join_tables  moves between {DEPARTMENTS} departments        {len(moves) / seconds:10,.0f} changes/s"
    )


def lookup(
    rng: random.Random, *, as_of: bool, keys: int = 10_000, batch: int = 20_000, batches: int = 10
) -> None:
    """Batches of a second, events up to a second out of order, a change for each 50 events."""
    logic = Lookup(("id", "amount"), ("name", "country"), as_of=as_of)
    states = {
        key: logic.step((key,), None, [(CHANGE, 0, 0, False, None, None, f"name {key}", "DE")], 0).state
        for key in range(keys)
    }
    due: dict[int, int] = {}
    seconds = 0.0
    for number in range(batches):
        watermark = number * 1_000_000
        rows: dict[int, list[tuple[Any, ...]]] = {key: [] for key, at in due.items() if watermark > at}
        for n in range(batch):
            at, key = watermark + rng.randrange(2_000_000), rng.randrange(keys)
            rows.setdefault(key, []).append((EVENT, at, 0, number * batch + n, f"order {n}", 1.5, None, None))
            if n % 50 == 0:
                change = (CHANGE, at, number * batch + n + 1, False, None, None, f"new {n}", "FR")
                rows.setdefault(rng.randrange(keys), []).append(change)
        started = time.process_time()
        for key, new in rows.items():
            step = logic.step((key,), states[key], new, watermark)
            states[key] = step.state
            due.pop(key, None)
            if step.due is not None:
                due[key] = step.due
        seconds += time.process_time() - started
    kind = "as of the event's time" if as_of else "newest version"
    print(f"lookup       {kind:<22}, {keys} keys          {batch * batches / seconds:10,.0f} events/s")


def narrow(rng: random.Random) -> dict[str, Any]:
    """Return a query that few flats match."""
    rent = rng.randrange(300, 3000)
    return {
        "all": [
            {"field": "city", "=": f"city {rng.randrange(50)}"},
            {"field": "rent", "between": [rent, rent + 60]},
            {"field": "rooms", "=": rng.randint(1, 5)},
            {"field": "text", "words": rng.choice(WORDS)},
        ]
    }


def wide(rng: random.Random) -> dict[str, Any]:
    """Return a query that many flats match, with nothing to file it under."""
    return {
        "all": [{"field": "rent", "<=": rng.randrange(300, 800)}, {"field": "rooms", ">=": rng.randint(1, 5)}]
    }


def texts(rng: random.Random) -> dict[str, Any]:
    """Return a query for two words and a rent."""
    words = " ".join(rng.sample(WORDS, 2))
    return {"all": [{"field": "text", "words": words}, {"field": "rent", "<=": rng.randrange(300, 3000)}]}


def searches(rng: random.Random, make: Callable[[random.Random], dict[str, Any]], count: int) -> None:
    """Match flats with a text of 30 words."""
    queries = [parse(json.dumps({"where": make(rng)}), FLATS) for _ in range(count)]
    index = SearchIndex(FLATS)
    for number, query in enumerate(queries):
        index.put(f"query {number}", query)
    flats = [
        {
            "city": f"city {rng.randrange(50)}",
            "rent": rng.randrange(300, 3000),
            "rooms": rng.randint(1, 5),
            "balcony": rng.random() < 0.5,
            "text": " ".join(rng.choices(WORDS, k=30)),
        }
        for _ in range(1000)
    ]
    for flat in flats:  # makes what is made when it is first needed
        index.match(flat)
    seconds, found = timed(lambda: [len(index.match(flat)) for flat in flats])

    def one_by_one() -> list[int]:
        return [
            sum(any(each.holds(document) for each in query) for query in queries) for document in documents
        ]

    documents = [Document(FLATS, flat) for flat in flats[:5]]
    passes, counted = timed(one_by_one)
    assert counted == found[:5]
    ratio = passes / 5 / (seconds / len(flats))
    matched = sum(found) / len(found)
    print(
        f"searches     {make.__name__:<7}{count:>7} queries,{matched:6.1f} match  "
        f"{len(flats) / seconds:10,.0f} events/s, {ratio:,.0f} times a pass over all"
    )


if __name__ == "__main__":
    source = random.Random(7)
    join_tables(source)
    lookup(source, as_of=False)
    lookup(source, as_of=True)
    for kind in (narrow, texts, wide):
        searches(source, kind, 10_000)
    searches(source, narrow, 100_000)
