"""Stream–table joins: events meet the newest version of their row, or the one valid at their time."""

from __future__ import annotations

from headwater.pipeline.lookups.keys import TableError, key_pairs
from headwater.pipeline.lookups.lookup import CHANGE, EVENT, Lookup

__all__ = ["CHANGE", "EVENT", "Lookup", "TableError", "key_pairs"]
