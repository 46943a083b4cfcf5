"""A join of two tables as they are, and what changes make of a table."""

from __future__ import annotations

from typing import Any

from headwater.pipeline.table_joins import Shape, Side

Table = dict[tuple[Any, ...], tuple[Any, ...]]


def joined(shape: Shape, left: Table, right: Table) -> Table:
    """Join two tables by comparing every row with every other."""
    mine, theirs = shape.join_places[0], shape.join_places[1]
    rest = [place for place, name in enumerate(shape.right.columns) if name not in dict(shape.on).values()]
    rows, partners = [], set()
    for one in left.values():
        found = False
        for pk, other in right.items():
            keys = [(one[a], other[b]) for a, b in zip(mine, theirs, strict=True)]
            if all(a is not None and a == b for a, b in keys):
                found = True
                partners.add(pk)
                rows.append((*one, *[other[place] for place in rest]))
        if not found and shape.how != "inner":
            rows.append((*one, *[None] * len(rest)))
    for pk, other in right.items() if shape.how == "full" else ():
        if pk not in partners:
            row: list[Any] = [None] * len(shape.left.columns)
            for a, b in zip(mine, theirs, strict=True):
                row[a] = other[b]
            rows.append((*row, *[other[place] for place in rest]))
    result = {shape.key_of(row): row for row in rows}
    assert len(result) == len(rows), "the key does not tell the rows apart"
    return result


def apply(table: Table, side: Side, rows: list[Any]) -> None:
    for deleted, row in rows:
        key = tuple(row[place] for place in side.key_places)
        if deleted:
            table.pop(key, None)
        elif None not in key:  # a table has no such row
            table[key] = row
