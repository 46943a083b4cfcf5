"""Employees joined with their departments as one writes it by hand with Spark's own state, by department.

It does less than `join_tables`: who changes departments has to say from where, and comes out as two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

RESULT = "employee long, name string, department int, title string, _deleted boolean"


def join(employees: DataFrame, departments: DataFrame) -> DataFrame:
    """Return the changes of the join."""
    none = F.lit(None)
    ours = employees.select("department", "employee", "name", none.cast("string").alias("title"), "_deleted")
    left = employees.where("was IS NOT NULL AND was <> department").select(
        F.col("was").alias("department"), "employee", "name", none.cast("string").alias("title"), F.lit(True)
    )
    theirs = departments.select(
        F.col("id").alias("department"), F.lit(-1).cast("long"), none.cast("string"), "title", "_deleted"
    )
    changes = ours.union(left).union(theirs)
    return changes.groupBy("department").transformWithStateInPandas(
        Department(), RESULT, outputMode="Append", timeMode="None"
    )


class Department(StatefulProcessor):
    """One department: its title, and its employees."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handles of Spark's state."""
        self._title = handle.getValueState("title", "title string")
        self._employees = handle.getMapState("employees", "employee long", "name string")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take what has changed."""
        import pandas as pd

        (department,) = key
        (title,) = self._title.get() or (None,)
        out: list[tuple[Any, ...]] = []
        renamed = title
        for frame in rows:
            for _, employee, name, new_title, deleted in frame.itertuples(index=False):
                if employee < 0:
                    renamed = new_title
                elif deleted:
                    self._employees.removeKey((employee,))
                    out.append((employee, None, department, None, True))
                else:
                    self._employees.updateValue((employee,), (name,))
                    out.append((employee, name, department, renamed, False))
        if renamed != title:
            self._title.update((renamed,))
            everyone = self._employees.iterator()
            out += [(one[0], name[0], department, renamed, False) for one, name in everyone]
        yield pd.DataFrame(out, columns=["employee", "name", "department", "title", "_deleted"])

    def close(self) -> None:
        """Leave nothing open."""
