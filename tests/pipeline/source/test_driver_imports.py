from __future__ import annotations

import subprocess
import sys


def test_the_process_that_only_plans_does_not_load_what_tasks_need() -> None:
    script = (
        "import sys, headwater.pipeline.source.datasource; "
        "print(*sorted({'numba', 'pandas', 'fastavro', 'pyarrow.json', 'pyarrow.compute'} & sys.modules.keys()))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert loaded.split() == []
