"""Which tests with real servers go to the same process, and in which order they are handed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

# What takes long goes first, so that no process is left with it when the others are done. The order is by the times
# that `pytest --durations=0` tells; what is not named here is short, and fills the gaps.
LONGEST_FIRST = (
    "tests/clients on-kafka",
    "tests/amqp_clients on-rabbitmq",
    "tests/pipeline/sinks/test_kills.py",
    "tests/clients on-headwater",
    "tests/cli on-kafka",
    "tests/capture/mysql/test_mysql_follow_real.py",
    "tests/cli on-headwater",
    "tests/pipeline/test_lookup_app.py",
    "tests/amqp_clients on-headwater",
    "tests/derived/test_real_spark_warehouse.py",
    "tests/pipeline/run/test_run_rebuild.py",
    "tests/cli/test_demo_run.py",
    "tests/pipeline/run/test_run_once.py",
    "tests/pipeline/run/test_run_cluster.py",
    "tests/capture/test_real_capture_large.py",
    "tests/pipeline/table_joins/test_join_tables_spark.py",
    "tests/capture/mysql/test_mysql_errors_real.py",
    "tests/capture/mysql/test_mysql_schemas_real.py",
    "tests/docs/test_derived_page.py",
    "tests/pipeline/test_pipeline_pages.py",
    "tests/capture/mysql/test_mysql_crash_real.py",
    "tests/derived/test_real_derived.py",
    "tests/pipeline/source/test_real_spark.py",
    "tests/capture/mysql/test_mysql_tls_real.py",
    "tests/cli/test_up.py",
    "tests/serve/test_serve_openapi.py",
    "tests/pipeline/test_searches_spark.py",
    "tests/bench/test_bench_spark.py",
    "tests/capture/test_real_capture_crash.py",
    "tests/events on-kafka",
    "tests/pipeline/table_joins/test_join_tables_app.py",
    "tests/clients/test_archive.py",
    "tests/net/amqp/test_amqp_crash.py",
    "tests/clients/access on-kafka",
    "tests/serve/test_serve_process.py",
    "tests/pipeline/test_summarise.py",
    "tests/clients/access/test_clients.py",
    "tests/net/test_crash_transactions.py",
)
_RANKS = {scope: rank for rank, scope in enumerate(LONGEST_FIRST)}
# Spark runs in the process of these tests. A Spark that is new there loads and compiles for half a minute what an older
# one has already, so the first process takes them all, unless the others find nothing else.
_WITH_SPARK = ("tests/app/", "tests/docs/test_readme", "tests/pipeline/", "tests/testing/")
# These start Spark elsewhere, one after the other: two cores are not enough for several that begin at the same time.
START_SPARK = (
    "tests/bench/test_bench_spark.py",
    "tests/cli/test_demo_run.py",
    "tests/cli/test_up.py",
    "tests/derived/test_real_derived_stream.py",
    "tests/derived/test_real_spark_warehouse.py",
    "tests/docs/test_derived_page.py",
    "tests/pipeline/run/",
)
_IN_PROCESS, _BESIDE, _WITHOUT = range(3)
# What the first process takes, the second, and all others; each takes what is left where there is no more of its own.
_PREFERENCES = (
    (_IN_PROCESS, _WITHOUT, _BESIDE),
    (_BESIDE, _WITHOUT, _IN_PROCESS),
    (_WITHOUT, _BESIDE, _IN_PROCESS),
)


class ByServer(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps together what shares a server: the tests of a directory on one broker; all others go by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for broker in ("on-headwater", "on-kafka", "on-rabbitmq"):
            if broker in nodeid:
                return f"{Path(file).parent} {broker}"
        return file

    def _assign_work_unit(self, node: Any) -> None:
        preference = _PREFERENCES[min(self.nodes.index(node), len(_PREFERENCES) - 1)]
        first = min(
            self.workqueue,
            key=lambda scope: (preference.index(_use_of_spark(scope)), _RANKS.get(scope, len(_RANKS))),
        )
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def _use_of_spark(scope: str) -> int:
    if scope.startswith(START_SPARK):
        return _BESIDE
    return _IN_PROCESS if scope.startswith(_WITH_SPARK) else _WITHOUT
