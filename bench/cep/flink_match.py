"""Card testing by MATCH_RECOGNIZE in Flink SQL; run by a Python that has `apache-flink`, not by the project's.

    python flink_match.py PASSES PARALLELISM DIRECTORY

Prints one line of JSON a pass.
"""

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

FIRST_MS = 1_767_225_600_000
SOURCE = """
CREATE TABLE payments (
  card INT, amount DOUBLE, at_ms BIGINT,
  paid_at AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR paid_at AS paid_at - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')
"""
QUERY = """
SELECT card, started, ended, size FROM payments MATCH_RECOGNIZE (
  PARTITION BY card ORDER BY paid_at
  MEASURES FIRST(S.at_ms) AS started, L.at_ms AS ended, COUNT(S.at_ms) + 1 AS size
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (S{3,} L) WITHIN INTERVAL '10' MINUTE
  DEFINE S AS S.amount < 2.0, L AS L.amount > 500.0
)
"""


def main(passes: int, parallelism: int, directory: str) -> None:
    """Do all passes in one process, so that the first may compile for the others."""
    for _ in range(passes):
        tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        tables.get_config().set("parallelism.default", str(parallelism))
        tables.execute_sql(SOURCE.format(path=directory))
        found = total = 0
        began = time.perf_counter()
        with tables.execute_sql(QUERY).collect() as rows:
            for card, started, ended, size in rows:
                found += 1
                total += card * 31 + (started - FIRST_MS) * 17 + (ended - FIRST_MS) + size
        print(json.dumps({"seconds": time.perf_counter() - began, "found": found, "sum": total}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
