"""What `import headwater` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater


def test_the_public_names_are_these() -> None:
    assert headwater.__all__ == [
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


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(headwater, name) is getattr(headwater, name)
    assert name in dir(headwater)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'headwater' has no attribute 'nothing'"):
        _ = headwater.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["import headwater", "from headwater import App, Delivery"])
def test_nothing_of_spark_is_loaded_before_it_is_used(code: str) -> None:
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    roots = {name.partition(".")[0] for name in loaded.split()}
    assert "headwater" in roots
    assert roots.isdisjoint({"pyspark", "pyarrow", "pandas", "numba", "starlette"})
