"""Client quotas: which one counts, what is refused, and that the log tells it all again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.quotas import (
    CLIENT_ID,
    CONNECTIONS,
    CONSUMED,
    IP,
    PRODUCED,
    REQUESTS,
    USER,
    Alteration,
    Component,
    Quotas,
)
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

# In the order of precedence; the names of the taker that each counts under.
LEVELS: list[tuple[list[tuple[str, str | None]], tuple[str | None, str | None]]] = [
    ([(USER, "ann"), (CLIENT_ID, "app")], ("ann", "app")),
    ([(USER, "ann"), (CLIENT_ID, None)], ("ann", "app")),
    ([(USER, "ann")], ("ann", None)),
    ([(USER, None), (CLIENT_ID, "app")], ("ann", "app")),
    ([(USER, None), (CLIENT_ID, None)], ("ann", "app")),
    ([(USER, None)], ("ann", None)),
    ([(CLIENT_ID, "app")], (None, "app")),
    ([(CLIENT_ID, None)], (None, "app")),
]


def altered(quotas: Quotas, *alterations: Alteration) -> list[tuple[ErrorCode, str] | None]:
    records, answers = quotas.alter(alterations)
    for record in records:
        assert quotas.replay(record)
    return answers


@given(st.sets(st.integers(0, len(LEVELS) - 1)))
def test_the_most_specific_quota_counts(present: set[int]) -> None:
    quotas = Quotas()
    for level in present:
        assert altered(quotas, Alteration(LEVELS[level][0], [(PRODUCED, 1000.0 + level)])) == [None]
    grant = quotas.client(PRODUCED, "ann", "app")
    if not present:
        assert grant is None
        return
    first = min(present)
    assert grant is not None
    assert grant.limit == 1000 + first
    assert grant.taker == (PRODUCED, *LEVELS[first][1])


def test_a_quota_for_something_else_does_not_hide_a_wider_one() -> None:
    quotas = Quotas()
    altered(quotas, Alteration([(USER, "ann")], [(CONSUMED, 5)]), Alteration([(USER, None)], [(PRODUCED, 7)]))
    grant = quotas.client(PRODUCED, "ann", "app")
    assert grant is not None
    assert grant.limit == 7


def test_addresses() -> None:
    quotas = Quotas()
    altered(
        quotas, Alteration([(IP, None)], [(CONNECTIONS, 2)]), Alteration([(IP, "::1")], [(CONNECTIONS, 9)])
    )
    assert [grant.limit for host in ("10.0.0.1", "::1") if (grant := quotas.address(host))] == [2, 9]
    assert quotas.client(PRODUCED, "ann", "app") is None


@pytest.mark.parametrize(
    ("entity", "values", "problem"),
    [
        ([], [(PRODUCED, 1)], "Invalid empty client quota entity"),
        ([("group", "a")], [(PRODUCED, 1)], "Unhandled client quota entity type: group"),
        ([(USER, "")], [(PRODUCED, 1)], "Empty user not supported"),
        ([(USER, "a"), (USER, "b")], [(PRODUCED, 1)], "duplicate entity entry user"),
        ([(USER, "a"), (IP, "::1")], [(PRODUCED, 1)], "should not be combined"),
        ([(IP, "nowhere at all")], [(CONNECTIONS, 1)], "not a valid IP"),
        ([(IP, "::1")], [(PRODUCED, 1)], "Invalid configuration key producer_byte_rate"),
        ([(USER, "a")], [(CONNECTIONS, 1)], "Invalid configuration key connection_creation_rate"),
        ([(USER, "a")], [("speed", 1)], "Invalid configuration key speed"),
        ([(USER, "a")], [(PRODUCED, 0)], "must be greater than 0"),
        ([(USER, "a")], [(PRODUCED, float("nan"))], "must be greater than 0"),
        ([(USER, "a")], [(PRODUCED, 1.5)], "cannot be a fractional value"),
        ([(USER, "a")], [(PRODUCED, 1e19)], "too large"),
        ([(USER, "a")], [(REQUESTS, float("inf"))], "too large"),
        ([(USER, "a")], [(PRODUCED, 1), (PRODUCED, 2)], "Duplicate quota key"),
    ],
)
def test_what_does_not_fit_is_refused(
    entity: list[tuple[str, str | None]], values: list[tuple[str, float | None]], problem: str
) -> None:
    quotas = Quotas()
    [answer] = altered(quotas, Alteration(entity, values))
    assert answer is not None
    code, message = answer
    assert code is ErrorCode.invalid_request
    assert problem in message
    assert not quotas.by_entity


def test_an_entity_is_changed_once_in_a_request() -> None:
    quotas = Quotas()
    first = Alteration([(USER, "a"), (CLIENT_ID, "b")], [(PRODUCED, 1)])
    again = Alteration([(CLIENT_ID, "b"), (USER, "a")], [(PRODUCED, 2)])
    answers = altered(quotas, first, again)
    assert answers[0] is None
    assert answers[1] is not None
    grant = quotas.client(PRODUCED, "a", "b")
    assert grant is not None
    assert grant.limit == 1


def test_a_change_that_changes_nothing_is_not_written() -> None:
    quotas = Quotas()
    change = Alteration([(USER, "a")], [(REQUESTS, 12.5)])
    altered(quotas, change)
    assert quotas.alter([change]) == ([], [None])
    assert quotas.alter([Alteration([(USER, "b")], [(PRODUCED, None)])]) == ([], [None])


def test_the_filter_of_describe() -> None:
    quotas = Quotas()
    for entity, _ in LEVELS:
        altered(quotas, Alteration(entity, [(PRODUCED, 1)]))

    def found(*components: Component, strict: bool = False) -> int:
        return len(quotas.describe(components, strict=strict))

    assert found() == 8
    assert found(strict=True) == 0
    assert found(Component(USER, 2, None)) == 6
    assert found(Component(USER, 2, None), strict=True) == 2
    assert found(Component(USER, 0, "ann")) == 3
    assert found(Component(USER, 1, None)) == 3
    assert found(Component(USER, 0, "ann"), Component(CLIENT_ID, 1, None), strict=True) == 1
    assert found(Component(IP, 2, None)) == 0


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", 2, None)], ErrorCode.invalid_request),
        ([Component("group", 2, None)], ErrorCode.unsupported_version),
        ([Component(USER, 2, None), Component(USER, 1, None)], ErrorCode.invalid_request),
        ([Component(USER, 0, None)], ErrorCode.invalid_request),
        ([Component(USER, 1, "a")], ErrorCode.invalid_request),
        ([Component(USER, 3, None)], ErrorCode.invalid_request),
        ([Component(USER, 2, None), Component(IP, 2, None)], ErrorCode.invalid_request),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as raised:
        Quotas().describe(components, strict=False)
    assert raised.value.code is code


NAMES = st.one_of(st.none(), st.sampled_from(["ann", "app", "ünï", 'a"b/c']))
ENTITIES = st.one_of(
    NAMES.map(lambda name: [(USER, name)]),
    NAMES.map(lambda name: [(CLIENT_ID, name)]),
    st.tuples(NAMES, NAMES).map(lambda pair: [(USER, pair[0]), (CLIENT_ID, pair[1])]),
)
VALUES = st.dictionaries(
    st.sampled_from([PRODUCED, CONSUMED, REQUESTS]), st.one_of(st.none(), st.integers(1, 2**53).map(float))
)


@given(st.lists(st.tuples(ENTITIES, VALUES), max_size=20))
def test_the_log_and_its_newest_values_alone_give_the_same_quotas(
    changes: list[tuple[list[tuple[str, str | None]], dict[str, float | None]]],
) -> None:
    quotas = Quotas()
    log: list[StateRecord] = []
    model: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
    for entity, values in changes:
        records, [answer] = quotas.alter([Alteration(entity, list(values.items()))])
        assert answer is None
        log += records
        for record in records:
            quotas.replay(record)
        kept = model.setdefault(frozenset(entity), {})
        for key, value in values.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value
    expected = {entity: values for entity, values in model.items() if values}
    newest = {record.key: record for record in log}
    for stored in (log, list(newest.values())):
        again = Quotas()
        for record in stored:
            assert again.replay(record)
        assert {frozenset(entity): values for entity, values in again.by_entity.items()} == expected


def test_records_of_others_are_left_alone() -> None:
    assert not Quotas().replay(StateRecord(b"user/ann", b"{}"))


def test_every_pair_of_entity_types_has_one_form() -> None:
    for parts in itertools.permutations([(USER, "a"), (CLIENT_ID, "b")]):
        quotas = Quotas()
        altered(quotas, Alteration(list(parts), [(PRODUCED, 1)]))
        assert list(quotas.by_entity) == [((CLIENT_ID, "b"), (USER, "a"))]
