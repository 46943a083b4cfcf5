"""What `on=` says: which columns of a stream, or of another table, stand for a table's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from headwater.core.errors import HeadwaterError

__all__ = ["TableError", "key_pairs", "named_pairs", "refuse_clashes", "refuse_missing"]

On = str | Sequence[str] | Mapping[str, str]


class TableError(HeadwaterError):
    """A lookup or a join of tables was given something that it cannot work with."""


def named_pairs(on: On) -> dict[str, str]:
    """Return `on` as pairs: the column on the left, and the one on the right that it equals.

    >>> named_pairs("user_id"), named_pairs({"user_id": "id"})
    ({'user_id': 'user_id'}, {'user_id': 'id'})
    """
    if isinstance(on, str):
        return {on: on}
    pairs = dict(on) if isinstance(on, Mapping) else {name: name for name in on}
    if not pairs:
        raise TableError('on= is empty; name the columns to join by, as in on="user_id"')
    twice = [name for name in pairs.values() if list(pairs.values()).count(name) > 1]
    if twice:
        raise TableError(f"on= gives {twice[0]} twice; give each column of the right side once")
    return pairs


def key_pairs(
    on: On, columns: Sequence[str], table: str, key: Sequence[str], table_columns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs (column of the stream, column of the table's key), in the order of the key.

    The table's columns have to be its whole key: a lookup meets one row, or none.
    """
    pairs = named_pairs(on)
    refuse_missing(pairs, columns, "the stream")
    refuse_missing(pairs.values(), table_columns, table)
    if set(pairs.values()) != set(key):
        raise TableError(
            f"lookup in {table} is by its key, {' and '.join(key)}, and on= gives "
            f"{' and '.join(pairs.values())}; write on={_suggested(pairs, key)}, or use join_tables"
        )
    stream_column = {theirs: ours for ours, theirs in pairs.items()}
    return tuple((stream_column[name], name) for name in key)


def refuse_missing(names: Iterable[str], columns: Sequence[str], whose: str) -> None:
    """Refuse names that are no column of `whose`."""
    for name in names:
        if name not in columns:
            near = get_close_matches(name, columns, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise TableError(f"{whose} has no column {name}{hint}; it has {', '.join(columns)}")


def refuse_clashes(left: Sequence[str], right: Sequence[str], what: str, table: str | None = None) -> None:
    """Refuse two sides with the same name for different columns; `table` names one that can be renamed."""
    both = [name for name in left if name in right]
    if both:
        renaming = f"withColumnRenamed({both[0]!r}, …)"
        if table is not None:
            renaming = f'{table}.renamed({{"{both[0]}": "…"}})'
        raise TableError(
            f"both sides of {what} have {', '.join(both)}; rename them on one side, as in {renaming}"
        )


def _suggested(pairs: Mapping[str, str], key: Sequence[str]) -> str:
    if len(pairs) == len(key) == 1:
        return f'{{"{next(iter(pairs))}": "{key[0]}"}}'
    return "{" + ", ".join(f'"…": "{name}"' for name in key) + "}"
