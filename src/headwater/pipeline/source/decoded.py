"""What every format's decoder returns."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.pipeline.source.opened import Records

__all__ = ["Decoded", "Decoder", "Malformed", "empty"]


class Malformed(ValueError):
    """A record that does not fit the declaration; the text is the reason in its dead letter."""


class Decoded(NamedTuple):
    """The declared columns of some records."""

    columns: list[pa.Array]
    rows: NDArray[np.intp] | None
    """The record that each row is of; None where it is one row per record."""
    dead: list[tuple[int, str]]
    """The records that gave no row because they are malformed, with the reason."""


class Decoder(Protocol):
    """Turns records into columns, in the order of the schema that it was made with."""

    def decode(self, records: Records) -> Decoded:
        """Return the rows of some records; a malformed one never raises."""


def empty(schema: pa.Schema) -> list[pa.Array]:
    """Return columns without rows."""
    return [pa.array([], field.type) for field in schema]
