"""Changes of a table whose keys are whole: whoever keeps rows by key can do nothing with the others.

A column of the key may be read as the text that its JSON has, for how it was written to be known; it has to fit its
type all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.app.types import Field, Scalar
from headwater.core.json_types import Misfit
from headwater.derived.columns import converter_of
from headwater.pipeline.source.decoded import Decoded, Decoder
from headwater.pipeline.source.opened import Records

__all__ = ["KeyChecked", "text_converter"]

_FLOATS = (Scalar("float"), Scalar("double"))


def text_converter(column: Field) -> Callable[[str], Any]:
    """Return what makes a value of the text of its JSON, or raises `Misfit`."""
    convert = converter_of(column.type)
    if column.type not in _FLOATS:
        return convert

    def of_number(text: str) -> Any:
        try:
            return convert(Decimal(text))
        except InvalidOperation:
            raise Misfit(f"{text[:100]} is not a number") from None

    return of_number


class KeyChecked:
    """A decoder whose rows without a whole key are malformed."""

    def __init__(self, decoder: Decoder, schema: pa.Schema, key: Sequence[Field]) -> None:
        self._decoder = decoder
        self._places = [schema.get_field_index(column.name) for column in key]
        self._columns = list(key)
        read_as_text = [
            pa.types.is_string(schema.field(place).type) and column.type != Scalar("string")
            for place, column in zip(self._places, key, strict=True)
        ]
        self._converters = [
            text_converter(column) if as_text else None
            for column, as_text in zip(key, read_as_text, strict=True)
        ]

    def decode(self, records: Records) -> Decoded:
        """Return the rows that have a whole key."""
        decoded = self._decoder.decode(records)
        wrong: dict[int, str] = {}
        for place, column, convert in zip(self._places, self._columns, self._converters, strict=True):
            values = decoded.columns[place]
            for row in np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False)).tolist():
                wrong[row] = f"the row has no {column.name}, which is its key"
            if convert is not None:
                wrong |= _misfits(column, convert, values)
        if not wrong:
            return decoded
        count = len(decoded.columns[0])
        rows = np.arange(count) if decoded.rows is None else decoded.rows
        kept = np.ones(count, np.bool_)
        kept[list(wrong)] = False
        dead = [(int(rows[row]), reason) for row, reason in wrong.items()]
        columns = [column.filter(pa.array(kept)) for column in decoded.columns]
        return Decoded(columns, rows[kept], sorted([*decoded.dead, *dead]))


def _misfits(column: Field, convert: Callable[[str], Any], values: pa.Array) -> dict[int, str]:
    found: dict[int, str] = {}
    for row, text in enumerate(values.to_pylist()):
        try:
            if text is not None:
                convert(text)
        except Misfit as error:
            found[row] = f"{column.name}: {error}"
    return found
