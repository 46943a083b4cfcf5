"""Headwater: a stream-processing platform for Python teams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.app import App as App
    from headwater.app import Delivery as Delivery
    from headwater.pipeline.clocks import corrected_time as corrected_time
    from headwater.pipeline.deduplicate import deduplicate as deduplicate
    from headwater.pipeline.joins import join_within as join_within
    from headwater.pipeline.lookups.operator import lookup as lookup
    from headwater.pipeline.patterns.match import match as match
    from headwater.pipeline.previous import versus_previous as versus_previous
    from headwater.pipeline.searches.matching import matching as matching
    from headwater.pipeline.searches.matching import unreadable_searches as unreadable_searches
    from headwater.pipeline.sliding import sliding as sliding
    from headwater.pipeline.summarise import summarise as summarise
    from headwater.pipeline.table_joins.join_tables import as_table as as_table
    from headwater.pipeline.table_joins.join_tables import join_tables as join_tables
    from headwater.pipeline.windows import hopping as hopping
    from headwater.pipeline.windows import session as session
    from headwater.pipeline.windows import tumbling as tumbling

__version__ = "0.1.0.dev0"

# Where each name comes from, imported when it is first asked for: the command line starts without what an
# application needs, and an application is loaded and checked without Spark.
_HOMES = {
    "App": "headwater.app",
    "Delivery": "headwater.app",
    "as_table": "headwater.pipeline.table_joins.join_tables",
    "corrected_time": "headwater.pipeline.clocks",
    "deduplicate": "headwater.pipeline.deduplicate",
    "hopping": "headwater.pipeline.windows",
    "join_tables": "headwater.pipeline.table_joins.join_tables",
    "join_within": "headwater.pipeline.joins",
    "lookup": "headwater.pipeline.lookups.operator",
    "match": "headwater.pipeline.patterns.match",
    "matching": "headwater.pipeline.searches.matching",
    "session": "headwater.pipeline.windows",
    "sliding": "headwater.pipeline.sliding",
    "summarise": "headwater.pipeline.summarise",
    "tumbling": "headwater.pipeline.windows",
    "unreadable_searches": "headwater.pipeline.searches.matching",
    "versus_previous": "headwater.pipeline.previous",
}

__all__ = [
    "App",
    "Delivery",
    "__version__",
    "as_table",
    "corrected_time",
    "deduplicate",
    "hopping",
    "join_tables",
    "join_within",
    "lookup",
    "match",
    "matching",
    "session",
    "sliding",
    "summarise",
    "tumbling",
    "unreadable_searches",
    "versus_previous",
]

if not TYPE_CHECKING:  # or every name would seem to be there

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
