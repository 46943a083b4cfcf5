"""Queries evaluated as they are written, one after the other; and strategies that write them."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from headwater.pipeline.searches.fields import Kind

FIELDS: dict[str, Kind] = {
    "city": "text",
    "rent": "number",
    "price": "decimal",
    "balcony": "boolean",
    "from": "time",
    "built": "date",
    "text": "text",
}
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
START = datetime(2026, 3, 1, tzinfo=UTC)


def matches(condition: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Evaluate a condition; what a comparison asks of a value that is missing is false."""
    if "all" in condition:
        return all(matches(part, event) for part in condition["all"])
    if "any" in condition:
        return any(matches(part, event) for part in condition["any"])
    if "not" in condition:
        return not matches(condition["not"], event)
    name = condition["field"]
    value = event.get(name)
    if isinstance(value, float) and value != value:
        value = None
    return all(_asked(name, value, op, asked) for op, asked in condition.items() if op != "field")


def _asked(name: str, value: Any, op: str, asked: Any) -> bool:
    if op == "exists":
        return bool((value is not None) == asked)
    if value is None:
        return False
    if op in ("words", "any_words"):
        parts = re.findall(r'"[^"]*"|[^\s"]+', asked)
        return (all if op == "words" else any)(_has(value, part) for part in parts)
    if op == "in":
        return any(value == _value(name, each) for each in asked)
    if op == "between":
        return bool(_value(name, asked[0]) <= value <= _value(name, asked[1]))
    return bool(COMPARE[op](value, _value(name, asked)))


def _has(text: str, part: str) -> bool:
    words = [word for word in re.split(r"\W+", text.casefold()) if word]
    if part.endswith("*"):
        return any(word.startswith(part[:-1].casefold()) for word in words)
    wanted = [word for word in re.split(r"\W+", part.casefold()) if word]
    return any(words[n : n + len(wanted)] == wanted for n in range(len(words)))


def _value(name: str, asked: Any) -> Any:
    if FIELDS[name] == "time":
        return (datetime.fromisoformat(asked) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if FIELDS[name] == "date":
        return (date.fromisoformat(asked) - date(1970, 1, 1)).days
    return Decimal(str(asked)) if FIELDS[name] == "decimal" else asked


def literals(name: str) -> st.SearchStrategy[Any]:
    match FIELDS[name]:
        case "number":
            return st.integers(-3, 6) | st.sampled_from([0.5, 2.5, 4.0, 10**400])
        case "decimal":
            return st.sampled_from([0.1, 0.2, 0.3, 1, 2])
        case "boolean":
            return st.booleans()
        case "time":
            return st.integers(0, 5).map(lambda n: (START + timedelta(minutes=n)).isoformat())
        case "date":
            return st.sampled_from(["1969-12-31", "1970-01-01", "1970-01-03"])
        case "text":
            return st.sampled_from(["Berlin", "Bonn", "Köln", "berlin", ""])


WORDS = st.sampled_from(
    ["garden", "Gar*", "sun", "sun*", "ROOF", '"roof garden"', '"garden sun garden"', "south-west", "s*"]
)


@st.composite
def tests_of_fields(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from([*FIELDS]))
    ops = ["=", "!=", "in", "exists"]
    if FIELDS[name] != "boolean":
        ops += ["<", "<=", ">", ">=", "between"]
    if name == "text":
        ops = ["words", "any_words", "exists"]
    condition: dict[str, Any] = {"field": name}
    for op in draw(st.lists(st.sampled_from(ops), min_size=1, max_size=2, unique=True)):
        if op == "exists":
            condition[op] = draw(st.booleans())
        elif op in ("words", "any_words"):
            condition[op] = " ".join(draw(st.lists(WORDS, min_size=1, max_size=3)))
        elif op == "in":
            condition[op] = draw(st.lists(literals(name), min_size=1, max_size=3))
        elif op == "between":
            condition[op] = [draw(literals(name)), draw(literals(name))]
        else:
            condition[op] = draw(literals(name))
    return condition


CONDITIONS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    tests_of_fields(),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": st.none() | st.sampled_from(["Berlin", "Bonn", "Köln", "berlin", "", "Bamberg"]),
        "rent": st.none() | st.integers(-3, 6) | st.sampled_from([0.5, 2.5, 4.0, float("nan"), float("inf")]),
        "price": st.none() | st.sampled_from([Decimal("0.1"), Decimal("0.25"), Decimal("1.0"), Decimal(2)]),
        "balcony": st.none() | st.booleans(),
        "from": st.none() | st.integers(0, 5).map(lambda n: int(START.timestamp() + 60 * n) * 1_000_000),
        "built": st.none() | st.integers(-1, 3),
        "text": st.none()
        | st.lists(st.sampled_from(["Garden", "sun", "roof", "sunny", "south-west", "gar"]), max_size=5).map(
            ", ".join
        ),
    },
)
