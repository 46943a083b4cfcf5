"""Employees and departments, and what changes in them: the same for both sides, as files that Spark reads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EMPLOYEES = "employee long, name string, department int, was int"
"""`was` is the department before the change, for a join that keeps no foreign keys itself."""
DEPARTMENTS = "id int, title string"
CHANGE = "_deleted boolean, _changed_at timestamp, _version long"
LARGE = 0
"""The department that is renamed."""
MOVING = 0.2
"""The share of changed employees that go to another department."""

Row = dict[str, Any]


@dataclass
class Staff:
    """One large department, and many small ones with ten employees each."""

    directory: Path
    large: int
    departments: int
    _rng: random.Random = field(default_factory=lambda: random.Random(7))
    _homes: dict[int, int] = field(default_factory=dict)
    _files: int = 0
    _version: int = 0

    def load(self) -> int:
        """Write all employees and departments as one batch, and return how many changes that is."""
        departments = [{"id": n, "title": f"department {n}"} for n in range(self.departments + 1)]
        self._homes = dict.fromkeys(range(self.large), LARGE)
        for n in range(self.departments * 10):
            self._homes[self.large + n] = 1 + n % self.departments
        employees = (
            {"employee": n, "name": f"employee {n}", "department": home, "was": None}
            for n, home in self._homes.items()
        )
        return self._write(list(employees), departments)

    def change(self, count: int) -> int:
        """Write changes of different employees of the small departments as one batch."""
        chosen = self._rng.sample(range(self.large, len(self._homes)), count)
        return self._write(list(self._changes(chosen)), [])

    def rename(self) -> int:
        """Write a new title of the large department, and return how many rows of the join that changes."""
        self._write([], [{"id": LARGE, "title": f"department {LARGE}, as of {self._version}"}])
        return self.large

    def _changes(self, chosen: list[int]) -> Iterator[Row]:
        for n in chosen:
            was = self._homes[n]
            if self._rng.random() < MOVING:
                self._homes[n] = self._rng.randrange(1, self.departments + 1)
            yield {
                "employee": n,
                "name": f"employee {n} {self._version}",
                "department": self._homes[n],
                "was": was,
            }

    def _write(self, employees: list[Row], departments: list[Row]) -> int:
        for name, rows, schema in (
            ("employees", employees, _EMPLOYEES),
            ("departments", departments, _DEPARTMENTS),
        ):
            for row in rows:
                self._version += 1
                row |= {"_deleted": False, "_changed_at": None, "_version": self._version}
            target = self.directory / name / f"{self._files:06}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            hidden = target.with_name(f".{target.name}")
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), hidden)
            os.utime(hidden, (self._files, self._files))  # Spark reads files in the order of their times
            hidden.rename(target)
        self._files += 1
        return len(employees) + len(departments)


_CHANGE = [("_deleted", pa.bool_()), ("_changed_at", pa.timestamp("us", "UTC")), ("_version", pa.int64())]
_EMPLOYEES = pa.schema(
    [
        ("employee", pa.int64()),
        ("name", pa.string()),
        ("department", pa.int32()),
        ("was", pa.int32()),
        *_CHANGE,
    ]
)
_DEPARTMENTS = pa.schema([("id", pa.int32()), ("title", pa.string()), *_CHANGE])
