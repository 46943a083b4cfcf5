"""Schemas for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from headwater.app.types import SCALARS, Array, DataType, Decimal, Field, Map, Scalar, Struct

scalars = st.sampled_from(sorted(set(SCALARS.values()))).map(Scalar)
decimals = st.integers(1, 38).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p)))
plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
odd_names = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=8)
comments = st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)


def fields(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Field, ...]]:
    """Return columns of such types, whose names differ by more than case."""
    field = st.builds(Field, plain_names | odd_names, types, st.booleans(), comments)
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda each: each.name.lower()).map(tuple)


types: st.SearchStrategy[DataType] = st.recursive(
    scalars | decimals,
    lambda inner: st.builds(Array, inner) | st.builds(Map, inner, inner) | st.builds(Struct, fields(inner)),
    max_leaves=6,
)
schemas = fields(types)
