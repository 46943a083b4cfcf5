"""Stored searches: standing queries kept in a compacted topic, each event matched against all of them.

fields        the columns that queries may ask about, and the values of an event
words         text as words, and what a query says about them
query         queries as JSON, read with clear errors
conjunctions  a query as alternatives, each of which is a conjunction of tests
bits          many conjunctions tested at once, as bits of integers
index         all queries, found by the values and words that they ask for
searches      the logic: queries and events in, matches and refusals out
matching      `matching` on streams, and what is wrong with queries
"""

from __future__ import annotations

from headwater.pipeline.searches.index import SearchIndex
from headwater.pipeline.searches.query import QueryError, parse
from headwater.pipeline.searches.searches import EVENT, QUERY, Searches, refusal

__all__ = ["EVENT", "QUERY", "QueryError", "SearchIndex", "Searches", "parse", "refusal"]
