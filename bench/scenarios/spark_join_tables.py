"""How fast a join of two tables follows their changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.figures import SPARK, AtLeast, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark.child import LOG_TAIL, MEASURE_SECONDS, PipelineError

LARGE = 100_000
DEPARTMENTS = 2_000
CHANGES = 5_000


class SparkJoinTables(SparkScenario):
    """Employees and departments: changes of employees one by one, and a department of 100,000 renamed.

    The peer is written by hand with `transformWithStateInPandas` by department. It does less: an employee who moves
    has to say from where, and comes out as a delete and an upsert.
    """

    name = "spark-join-tables"
    figures = (
        Figure("join-tables", "single-row changes", "changes/s", Better.HIGHER, (AtLeast(1.0, SPARK),)),
        Figure("join-tables-cpu", "CPU, 1,000 such changes", "s", Better.LOWER, peer=SPARK),
        Figure("join-tables-rename", "rename, rows of the join", "rows/s", Better.HIGHER, (AtLeast(1.0, SPARK),)),
        Figure("join-tables-rename-cpu", "CPU, one rename", "s", Better.LOWER, peer=SPARK),
        Figure("join-tables-load", "first load", "changes/s", Better.HIGHER, peer=SPARK),
        Figure("join-tables-memory", "memory in the end", "MB", Better.LOWER, peer=SPARK),
    )  # fmt: skip

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Measure in a process of its own; the broker is not asked."""
        command = [
            sys.executable, "-m", "bench.spark.tables", self.side,
            f"--large={scale.of(LARGE)}", f"--departments={scale.of(DEPARTMENTS)}",
            f"--changes={scale.of(CHANGES)}", f"--scratch={scratch}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=MEASURE_SECONDS)
        if done.returncode:
            raise PipelineError(f"{self.side} could not join tables:\n{done.stderr[-LOG_TAIL:]}")
        measured = json.loads(done.stdout.splitlines()[-1])
        return {figure.name: measured[figure.name] for figure in self.figures}
