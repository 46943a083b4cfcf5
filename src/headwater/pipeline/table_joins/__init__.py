"""Table–table joins maintained at every change of either side.

shape    which columns, which key the result has, what is refused
rekey    stage 1, keyed by a table's own key: a changed foreign key becomes a retraction and an assertion
join     stage 2, keyed by the join key: the pairs of a key, and what a change does to them
net      stage 3, over the rows of a batch: a row that left one join key for another is one upsert
pages    how a large group lies in state: a changed row writes one page of it
memory   the three stages in one process
join_tables  the stages on Spark
"""

from __future__ import annotations

from headwater.pipeline.table_joins.join import TableJoin
from headwater.pipeline.table_joins.memory import MaintainedJoin
from headwater.pipeline.table_joins.pages import MemoryPages, PageMap
from headwater.pipeline.table_joins.rekey import Rekey
from headwater.pipeline.table_joins.shape import LEFT, RIGHT, Shape, Side

__all__ = [
    "LEFT",
    "RIGHT",
    "MaintainedJoin",
    "MemoryPages",
    "PageMap",
    "Rekey",
    "Shape",
    "Side",
    "TableJoin",
]
