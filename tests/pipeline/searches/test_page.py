"""The page about stored searches: its query is read, and its reasons are given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headwater.pipeline.searches import QueryError, SearchIndex, parse
from headwater.pipeline.searches.fields import Kind

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "searches.md").read_text()
FIELDS: dict[str, Kind] = {"city": "text", "rent": "number", "balcony": "boolean", "text": "text"}


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_query_matches_what_it_says() -> None:
    index = SearchIndex(FIELDS)
    index.put("ann", parse(block("json"), FIELDS))
    flat = {"city": "Potsdam", "rent": 400, "text": "Roof terrace, quiet"}
    assert index.match(flat) == ["ann"]
    assert index.match({**flat, "text": "Sunny"}) == ["ann"]
    for other in ({"city": "Bonn"}, {"rent": 900}, {"rent": None}, {"text": "terrace, roof"}):
        assert index.match({**flat, **other}) == []
    assert index.match({**flat, "text": "Roof terrace; exchange of a flat"}) == []
    assert index.match({**flat, "text": None, "balcony": True}) == ["ann"]


def test_the_reasons_are_given() -> None:
    rent = {"field": "rent", "=": 1}
    words = {"field": "text", "any_words": "a b c d e f g"}
    queries = [
        {"all": [rent, {"field": "rent", "<": "900"}]},
        {"field": "rnet", "<": 5},
        {"any": [{"field": "text", "words": 'garden "roof'}]},
        {"all": [words, {**words, "any_words": "h i j k l m n"}, {**words, "any_words": "o p q r s t u"}]},
    ]
    for query, reason in zip(queries, block("text").splitlines(), strict=True):
        with pytest.raises(QueryError, match=f"^{re.escape(reason)}$"):
            parse(json.dumps({"where": query}), FIELDS)
