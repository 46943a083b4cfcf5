"""Queries as JSON: an object whose `where` is a condition.

    {"where": {"all": [
        {"field": "city", "in": ["Berlin", "Potsdam"]},
        {"field": "rent", ">=": 400, "<": 900},
        {"any": [{"field": "balcony", "=": true}, {"field": "text", "words": "garden \\"roof terrace\\" sun*"}]},
        {"not": {"field": "text", "any_words": "exchange sublet"}}
    ]}}

What else the object has is its owner's. A condition is read into alternatives (see `conjunctions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

from headwater.core import json_types
from headwater.core.errors import HeadwaterError
from headwater.pipeline.searches.conjunctions import (
    ALTERNATIVES,
    ANY,
    MISSING,
    Conjunction,
    Test,
    TooMany,
    both,
    either,
)
from headwater.pipeline.searches.fields import Fields, literal
from headwater.pipeline.searches.words import terms

__all__ = ["DEPTH", "QueryError", "parse"]

DEPTH: Final = 32
"""Conditions nest no deeper than this."""

_COMPARISONS: Final[dict[str, Callable[[Any], Test]]] = {
    "=": lambda value: Test(values=frozenset([value])),
    "!=": lambda value: Test(excluded=frozenset([value])),
    "<": lambda value: Test(high=(value, -1)),
    "<=": lambda value: Test(high=(value, 0)),
    ">": lambda value: Test(low=(value, 1)),
    ">=": lambda value: Test(low=(value, 0)),
}
_OPERATORS: Final = (*_COMPARISONS, "in", "between", "exists", "words", "any_words")
_FORMS: Final = ("all", "any", "not", "field")


class QueryError(HeadwaterError):
    """A stored query that cannot be read; the text is the reason in its dead letter."""


def parse(text: str | bytes, fields: Fields) -> list[Conjunction]:
    """Read a query, and return its alternatives; none at all where it can never match."""
    try:
        query = json_types.parse(text)
        json_types.string(query)  # or it holds what cannot be written
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the query is no JSON: {error}") from None
    if not isinstance(query, dict) or "where" not in query:
        raise QueryError('the query has no "where"; write {"where": {"field": "price", "<": 100}}')
    try:
        return _Reader(fields).condition(query["where"], "where", negated=False, depth=1)
    except TooMany:
        raise QueryError(
            f"the query has more than {ALTERNATIVES} alternatives when its any are multiplied out; "
            "split it into several queries"
        ) from None


class _Reader:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def condition(self, condition: Any, path: str, *, negated: bool, depth: int) -> list[Conjunction]:
        """Return the alternatives of a condition, or of its opposite."""
        if depth > DEPTH:
            raise QueryError(f"{path}: conditions are nested deeper than {DEPTH}")
        forms = [form for form in _FORMS if isinstance(condition, dict) and form in condition]
        if len(forms) != 1:
            raise QueryError(
                f"{path}: a condition is an object with one of {', '.join(_FORMS)}{_got(condition)}"
            )
        form = forms[0]
        if form == "field":
            return self._test(condition, path, negated=negated)
        if len(condition) > 1:
            other = next(name for name in condition if name != form)
            raise QueryError(f'{path}: "{other}" beside "{form}"; write {{"all": […]}} around both')
        if form == "not":
            return self.condition(condition["not"], f"{path}.not", negated=not negated, depth=depth + 1)
        parts = condition[form]
        if not isinstance(parts, list) or not parts:
            raise QueryError(f"{path}.{form}: has to be a list of conditions{_got(parts)}")
        read = [
            self.condition(part, f"{path}.{form}[{n}]", negated=negated, depth=depth + 1)
            for n, part in enumerate(parts)
        ]
        return _all(read) if (form == "all") != negated else either(read)

    def _test(self, condition: dict[str, Any], path: str, *, negated: bool) -> list[Conjunction]:
        name = condition["field"]
        if not isinstance(name, str) or name not in self._fields:
            near = get_close_matches(str(name), self._fields, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise QueryError(f"{path}: there is no field {name}{hint}; there is {', '.join(self._fields)}")
        operators = [operator for operator in condition if operator != "field"]
        if not operators:
            raise QueryError(f"{path}: {name} is not asked for anything; use one of {', '.join(_OPERATORS)}")
        read = []
        for operator in operators:
            if operator not in _OPERATORS:
                raise QueryError(f'{path}: "{operator}" is no operator; use one of {", ".join(_OPERATORS)}')
            try:
                read.append(self._operator(name, operator, condition[operator], negated=negated))
            except ValueError as error:
                if isinstance(error, TooMany):
                    raise
                raise QueryError(f'{path}: {name} "{operator}" {error}{_got(condition[operator])}') from None
        return either(read) if negated else _all(read)

    def _operator(self, name: str, operator: str, value: Any, *, negated: bool) -> list[Conjunction]:
        kind = self._fields[name]
        if operator in ("words", "any_words"):
            return self._words(name, operator, value, negated=negated)
        if operator == "between":
            if not isinstance(value, list) or len(value) != 2:
                raise ValueError("has to be a list of two, both of them included")
            bounds = [
                self._operator(name, op, each, negated=negated)
                for op, each in zip((">=", "<="), value, strict=True)
            ]
            return either(bounds) if negated else _all(bounds)
        if operator == "exists":
            if not isinstance(value, bool):
                raise ValueError("has to be true or false")
            test = ANY if value else MISSING
        elif operator == "in":
            if not isinstance(value, list) or not value:
                raise ValueError("has to be a list of values")
            test = Test(values=frozenset(literal(kind, each) for each in value))
        elif kind == "boolean" and operator not in ("=", "!="):
            raise ValueError("cannot be: true and false have no order, use =")
        else:
            test = _COMPARISONS[operator](literal(kind, value))
        return [Conjunction({name: test.complement() if negated else test})]

    def _words(self, name: str, operator: str, value: Any, *, negated: bool) -> list[Conjunction]:
        if self._fields[name] != "text":
            raise ValueError("cannot be: words are in texts only")
        if not isinstance(value, str):
            raise ValueError("has to be a text of words")
        found = [(name, term) for term in terms(value)]
        if (operator == "words") != negated:
            every = frozenset(found)
            return [Conjunction(forbidden=every) if negated else Conjunction(required=every)]
        return either(
            [Conjunction(forbidden=frozenset([word])) if negated else Conjunction(required=frozenset([word]))]
            for word in found
        )


def _all(parts: list[list[Conjunction]]) -> list[Conjunction]:
    whole = parts[0]
    for part in parts[1:]:
        whole = both(whole, part)
    return whole


def _got(value: Any) -> str:
    text = json.dumps(value, default=float, ensure_ascii=False)
    return f", and is {text if len(text) <= 60 else text[:60] + '…'}"
