"""Stored searches against queries that are evaluated one after the other."""

from __future__ import annotations

import json
import pickle
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from effort import examples
from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.searches import EVENT, QUERY, QueryError, Searches, SearchIndex, parse
from headwater.pipeline.searches import index as index_module
from headwater.pipeline.searches import searches as searches_module
from headwater.pipeline.searches.bits import BitIndex
from headwater.pipeline.searches.fields import Document, Kind

from .reference import CONDITIONS, EVENTS, FIELDS, matches


def read(condition: Any) -> list[Any]:
    return parse(json.dumps({"where": condition}), FIELDS)


@given(CONDITIONS, st.lists(EVENTS, min_size=1, max_size=5))
def test_the_alternatives_of_a_query_say_what_it_says(condition: Any, events: list[Any]) -> None:
    alternatives = read(condition)
    for event in events:
        document = Document(FIELDS, event)
        assert any(each.holds(document) for each in alternatives) == matches(condition, event)


@given(st.lists(CONDITIONS, min_size=1, max_size=20), st.lists(EVENTS, min_size=1, max_size=8))
def test_bits_say_of_many_conjunctions_what_each_says_itself(
    conditions: list[Any], events: list[Any]
) -> None:
    conjunctions = [each for condition in conditions for each in read(condition)]
    index = BitIndex(conjunctions)
    lengths = {"text": frozenset({1, 3})}
    for event in events:
        document = Document(FIELDS, event, lengths)
        passing = index.passing(document)
        for place, conjunction in enumerate(conjunctions):
            found = passing >> place & 1
            if index.unsure >> place & 1:
                found = found and conjunction.words_hold(document)
            assert bool(found) == conjunction.holds(document)


class Indexed(RuleBasedStateMachine):
    """Queries come, change and go; the bounds are low enough for every kind of cluster to come about."""

    def __init__(self) -> None:
        super().__init__()
        assert vars(index_module)["CROWD"] == 4
        self.index = SearchIndex(FIELDS)
        self.queries: dict[str, Any] = {}

    @rule(
        names=st.lists(st.integers(0, 30), min_size=1, max_size=20),
        conditions=st.lists(CONDITIONS, min_size=1, max_size=6),
    )
    def put(self, names: list[int], conditions: list[Any]) -> None:
        for place, name in enumerate(names):
            self.queries[str(name)] = conditions[place % len(conditions)]
            self.index.put(str(name), read(self.queries[str(name)]))

    @rule(names=st.sets(st.integers(0, 30), max_size=20))
    def remove(self, names: set[int]) -> None:
        for name in names:
            self.queries.pop(str(name), None)
            self.index.remove(str(name))
        assert len(self.index) == len(self.queries)

    @rule(events=st.lists(EVENTS, min_size=1, max_size=4))
    def match(self, events: list[Any]) -> None:
        for event in events:
            wanted = sorted(name for name, condition in self.queries.items() if matches(condition, event))
            assert self.index.match(event) == wanted


TestIndexed = Indexed.TestCase
TestIndexed.settings = settings(max_examples=examples(30), stateful_step_count=8)


@pytest.fixture(autouse=True)
def _small_clusters(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.cls is TestIndexed:
        monkeypatch.setattr(index_module, "FEW", 2)
        monkeypatch.setattr(index_module, "SEGMENT", 8)
        monkeypatch.setattr(index_module, "CROWD", 4)


def test_nothing_is_left_of_queries_that_are_gone() -> None:
    index = SearchIndex(FIELDS)
    for n in range(50):
        index.put(
            str(n),
            read({"all": [{"field": "city", "in": ["a", str(n)]}, {"field": "text", "words": "x* y"}]}),
        )
    for n in range(50):
        index.remove(str(n))
    assert not any(index._by_value.values())
    assert not any(index._by_word.values())
    assert not any(index._prefixes.values())


def test_queries_that_change_all_the_time_leave_no_holes() -> None:
    index = SearchIndex(FIELDS)
    for n in range(1000):
        index.put(str(n % 50), read({"field": "rent", "<": n}))
        assert len(index.match({"rent": n - 1})) == 1
    [cluster] = index._everywhere.values()
    assert sum(len(segment._slots) for segment in cluster._segments) < 150


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["where", "all", "any", "not", "field", "=", "<", "in", "between", "words", "exists", "x"]
            )
            | st.text(max_size=2),
            inner | st.sampled_from([*FIELDS]),
            max_size=3,
        )
    ),
)


@given(JSON | st.fixed_dictionaries({"where": JSON}))
def test_whatever_is_no_query_is_refused_with_a_reason(value: Any) -> None:
    try:
        parse(json.dumps(value), FIELDS)
    except QueryError as error:
        reason = str(error)
    else:
        return
    assert len(reason) > 10


def deep(levels: int) -> dict[str, Any]:
    condition: dict[str, Any] = {"field": "rent", "=": 1}
    for _ in range(levels):
        condition = {"not": condition}
    return condition


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (
            {"field": "rnet", "<": 5},
            r"where: there is no field rnet \(did you mean rent\?\); there is city, rent",
        ),
        ({"field": "rent", "<": "5"}, r'where: rent "<" has to be a number, and is "5"'),
        ({"field": "rent", "=<": 5}, r'where: "=<" is no operator; use one of =, !=, <'),
        ({"field": "rent"}, "where: rent is not asked for anything"),
        ({"field": "rent", "words": "x"}, r'where: rent "words" cannot be: words are in texts only'),
        (
            {"field": "from", ">": "2026-03-01"},
            r'from ">" has to be a time with its zone, as in .*Z", and is',
        ),
        ({"field": "balcony", "<": True}, r"true and false have no order, use ="),
        ({"field": "rent", "between": [1]}, "has to be a list of two"),
        ({"field": "rent", "in": []}, r"has to be a list of values, and is \[\]"),
        (
            {"field": "text", "words": 'a "b'},
            r"text \"words\" has a quote that is not closed, at '\"b', and is",
        ),
        ({"field": "text", "words": "ga*den"}, r"has a \* in the middle of 'ga\*den'"),
        ({"field": "text", "words": '"roof gar*"'}, r"has a phrase with a \*, .* a prefix stands by itself"),
        ({"field": "text", "words": "-"}, "has no word in '-', and is"),
        ({"field": "text", "words": " "}, "has no word in it"),
        ({"field": "text", "words": "south-we*"}, r"has a prefix that is not one word, 'south-we\*'"),
        ({"all": []}, "where.all: has to be a list of conditions"),
        (
            {"all": [{"not": {"rent": 5}}]},
            r"where.all\[0\].not: a condition is an object with one of all, any",
        ),
        ({"all": [{"field": "rent", "=": 1}], "any": []}, "where: a condition is an object with one of"),
        ({"not": {"field": "rent", "=": 1}, "x": 1}, '"x" beside "not"'),
        (deep(40), "conditions are nested deeper than 32"),
        (
            {
                "all": [
                    {"field": "text", "any_words": " ".join(f"w{n}{k}" for k in range(7))} for n in range(3)
                ]
            },
            "more than 256 alternatives when its any are multiplied out; split it",
        ),
    ],
)
def test_reasons(where: Any, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        read(where)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON: "),
        ("[]", 'has no "where"'),
        ('{"where": {"field": "rent", "=": NaN}}', "NaN is not JSON"),
        ('{"where": {"field": "rent", "=": 1e5000}}', "1E[+]5000 is too large a number"),
        ('{"where": {"field": "title", "words": "\\ud83d"}}', "holds half a surrogate pair"),
        ('{"where": {"field": "rent", "=": 1e999}}', "has to be a number"),
        ("[" * 100_000, "is no JSON: "),
    ],
)
def test_reasons_of_what_is_no_object(text: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        parse(text, FIELDS)


LOGIC = Searches(("city", "rent"), (("city", "text"), ("rent", "number")))
BERLIN = '{"where": {"field": "city", "=": "Berlin"}, "to": "a@b.example"}'
CHEAP = '{"where": {"field": "rent", "<": 500}}'


class Shard:
    """The state and the pages of one shard."""

    def __init__(self, number: int = 0, logic: Searches = LOGIC) -> None:
        self.key = (number,)
        self.logic = logic
        self.state: bytes | None = None
        self.pages: dict[int, bytes] = {}
        self.read_pages = 0

    def read(self, number: int) -> bytes | None:
        self.read_pages += 1
        return self.pages.get(number)

    def write(self, number: int, page: bytes | None) -> None:
        self.pages.pop(number, None)
        if page is not None:
            self.pages[number] = page

    def batch(self, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self.read_pages = 0
        step = self.logic.step(self.key, self.state, list(rows), 0, self)
        self.state = step.state
        assert step.due is None
        return step.out

    def queries(self) -> dict[str, str]:
        return {name: text for page in self.pages.values() for name, text in unpack(page).items()}


def event(offset: int, city: str, rent: int) -> tuple[Any, ...]:
    return (EVENT, 0, offset, None, None, city, rent)


def query(version: int, name: str, text: str | None) -> tuple[Any, ...]:
    return (QUERY, version, None, name, text, None, None)


def test_queries_come_change_and_go_while_events_flow() -> None:
    shard = Shard(logic=pickle.loads(pickle.dumps(LOGIC)))
    flat = event(0, "Berlin", 400)
    first = shard.batch(flat, query(2, "a", BERLIN), query(1, "a", CHEAP))
    assert first == [("a", BERLIN, "Berlin", 400, None)]
    second = shard.batch(event(2, "Bonn", 400), flat, query(3, "b", CHEAP))
    assert [(row[0], row[2]) for row in second] == [("a", "Berlin"), ("b", "Berlin"), ("b", "Bonn")]
    assert shard.queries() == {"a": BERLIN, "b": CHEAP}
    third = shard.batch(query(4, "a", None), flat)
    assert [row[0] for row in third] == ["b"]
    assert shard.batch(query(5, "b", None), flat) == []
    assert shard.state is None
    assert not shard.pages


def test_a_query_that_cannot_be_read_is_told_once_and_out_of_force() -> None:
    shards = [Shard(0), Shard(1)]
    rows = [query(3, "a", "{"), event(0, "Berlin", 400)]
    for shard in shards:
        shard.batch(query(1, "a", BERLIN), query(2, "b", CHEAP))
    told, match = shards[0].batch(*rows)
    assert told[:4] == ("a", "{", None, None)
    assert told[4].startswith("the query is no JSON")
    assert match == ("b", CHEAP, "Berlin", 400, None)
    assert shards[1].batch(*rows) == [match]
    assert shards[0].queries() == shards[1].queries() == {"b": CHEAP}


def test_an_index_is_made_again_where_it_is_not_remembered() -> None:
    shard = Shard()
    shard.batch(query(1, "a", BERLIN))
    flat = event(0, "Berlin", 400)
    before = shard.batch(flat)
    assert shard.read_pages == 0, "the index was remembered"
    searches_module._stored.clear()
    assert shard.batch(flat) == before
    assert shard.read_pages == searches_module.PAGES
    # A field that is gone: its queries match nothing, and stay until they change.
    narrow = Shard(logic=Searches(("rent",), (("rent", "number"),)))
    narrow.state, narrow.pages = shard.state, shard.pages
    assert narrow.batch((EVENT, 0, 1, None, None, 400)) == []
    assert (narrow.state, narrow.queries()) == (shard.state, {"a": BERLIN})


def test_shards_of_a_worker_share_an_index_whatever_the_order_of_changes() -> None:
    searches_module._stored.clear()
    one, other = Shard(0), Shard(1)
    changes = [query(n, f"q{n}", CHEAP) for n in range(5)]
    one.batch(*changes)
    other.batch(*reversed(changes))
    assert one.state == other.state
    assert len(searches_module._stored) == 1
    one.batch(query(9, "q1", None))
    [stored] = searches_module._stored.values()
    other.batch(query(9, "q1", None))
    assert [id(each) for each in searches_module._stored.values()] == [id(stored)]


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.sampled_from([BERLIN, CHEAP, "{", None]))
            | st.tuples(st.just(None), st.integers(300, 700)),
            max_size=5,
        ),
        max_size=6,
    ),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_shards_find_what_a_dictionary_of_queries_does(batches: list[Any], forgets: list[bool]) -> None:
    shards = [Shard(0), Shard(1)]
    known: dict[str, str] = {}
    for number, batch in enumerate(batches):
        if forgets[number]:
            searches_module._stored.clear()
        changes = [(name, text) for name, text in batch if name is not None]
        rents = [rent for name, rent in batch if name is None]
        for name, text in changes:
            known.pop(name, None)
            if text in (BERLIN, CHEAP):
                known[name] = text
        wanted = [
            (name, text, "Berlin", rent, None)
            for rent in rents
            for name, text in sorted(known.items())
            if text == BERLIN or rent < 500
        ]
        rows = [query(version, name, text) for version, (name, text) in enumerate(changes)]
        rows += [event(offset, "Berlin", rent) for offset, rent in enumerate(rents)]
        for shard in shards:
            assert [row for row in shard.batch(*rows) if row[-1] is None] == wanted
            assert shard.queries() == known


def test_dates_and_decimals_are_compared_as_such() -> None:
    logic = Searches(("day", "price"), (("day", "date"), ("price", "decimal")))
    shard = Shard(logic=logic)
    where = [{"field": "day", ">=": "2026-03-01"}, {"field": "price", "<=": 1.1}]
    shard.batch((QUERY, 1, None, "a", json.dumps({"where": {"all": where}}), None, None))
    march = 20513
    for day, price, found in [(march, "1.10", 1), (march - 1, "1.10", 0), (march, "1.1000001", 0)]:
        assert len(shard.batch((EVENT, 0, 0, None, None, day, price))) == found
    assert shard.batch((EVENT, 0, 0, None, None, march, None)) == []


FLATS: dict[str, Kind] = {
    "city": "text",
    "rent": "number",
    "rooms": "number",
    "balcony": "boolean",
    "text": "text",
}
VOCABULARY = [f"word{n}" for n in range(500)]


def flat_query(rng: random.Random) -> dict[str, Any]:
    where: list[dict[str, Any]] = []
    if rng.random() < 0.8:
        where.append({"field": "city", "in": [f"city {rng.randrange(50)}" for _ in range(rng.randint(1, 3))]})
    where.append({"field": "rent", "<=": rng.randrange(300, 2000)})
    if rng.random() < 0.6:
        where.append({"field": "rooms", ">=": rng.randint(1, 4)})
    if rng.random() < 0.3:
        where.append({"field": "text", "words": " ".join(rng.sample(VOCABULARY, 2))})
    if rng.random() < 0.2:
        where.append({"not": {"field": "balcony", "=": False}})
    return {"all": where}


def flat(rng: random.Random) -> dict[str, Any]:
    return {
        "city": f"city {rng.randrange(50)}",
        "rent": rng.randrange(300, 3000),
        "rooms": rng.randint(1, 5),
        "balcony": rng.random() < 0.5,
        "text": " ".join(rng.choices(VOCABULARY, k=30)),
    }


def test_ten_thousand_queries_cost_far_less_than_a_pass_over_them() -> None:
    rng = random.Random(7)
    index = SearchIndex(FLATS)
    queries = {f"q{n}": parse(json.dumps({"where": flat_query(rng)}), FLATS) for n in range(10_000)}
    for name, conjunctions in queries.items():
        index.put(name, conjunctions)
    events = [flat(rng) for _ in range(60)]
    for event in events:  # makes what is made when it is first needed
        index.match(event)

    def one_by_one(event: dict[str, Any]) -> list[str]:
        document = Document(FLATS, event)
        return sorted(name for name, query in queries.items() if any(each.holds(document) for each in query))

    # CPU time of this process, so that a busy machine does not decide.
    started = time.process_time()
    found = [index.match(event) for event in events]
    indexed = (time.process_time() - started) / len(events)
    started = time.process_time()
    wanted = [one_by_one(event) for event in events[:10]]
    passed = (time.process_time() - started) / 10
    assert found[:10] == wanted
    assert sum(map(len, found)) > 1000
    assert indexed < passed / 10
