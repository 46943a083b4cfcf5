"""`join_tables` in an application: what its page says, and with a crash around every commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.testing import replay

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_s_join_is_the_same_after_a_crash_around_every_commit(tmp_path: Path) -> None:
    page = (DOCS / "tables.md").read_text()
    section = page[page.index("## Two tables as one") : page.index("## Rules for both")]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    path = tmp_path / "company.py"
    path.write_text(block)
    outputs = replay(
        path,
        {
            "employees": [
                [{"id": n, "name": f"e{n}", "department_id": n % 2} for n in range(4)],
                [
                    {"id": 1, "name": "moved", "department_id": 0},
                    {"id": 2, "_deleted": True},
                    {"id": 3, "name": "e3", "department_id": None},
                    {"id": 4, "name": "new", "department_id": 1},
                ],
            ],
            "departments": [
                [{"id": 0, "title": "Sales"}, {"id": 1, "title": "Support"}],
                [{"id": 0, "title": "Marketing"}],
            ],
        },
    )
    assert sorted(outputs["staff"], key=lambda row: row["id"]) == [
        {"id": 0, "name": "e0", "department_id": 0, "title": "Marketing"},
        {"id": 1, "name": "moved", "department_id": 0, "title": "Marketing"},
        {"id": 4, "name": "new", "department_id": 1, "title": "Support"},
    ]
