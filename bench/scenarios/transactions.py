"""Kafka's TransactionalMessageCopier: records and the positions they were read at, committed together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from bench import tools
from bench.brokers import Broker
from bench.clients import create_topics
from bench.figures import AtLeast, Better, Figure
from bench.process import CpuMeter
from bench.scenarios.base import Scale, Scenario

RECORDS = 100_000
PER_TRANSACTION = 750
SOURCE = "source"
TARGET = "target"


class Transactions(Scenario):
    """The copier over one partition, from its first commit to its last."""

    name = "transactions"
    figures = (
        Figure(
            "copied",
            "TransactionalMessageCopier, 750 per transaction",
            "records/s",
            Better.HIGHER,
            (AtLeast(1.0),),
        ),
        Figure("copy-cpu", "broker CPU, million copied", "s", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill the source, then copy it."""
        # Two transactions at least: the first one is not timed.
        records = max(scale.of(RECORDS), 10 * PER_TRANSACTION)
        create_topics(broker.bootstrap, [SOURCE, TARGET], 1)
        tools.produce(broker.bootstrap, SOURCE, records)
        with CpuMeter(broker.pid) as copying:
            output = tools.run_tool(
                "TransactionalMessageCopier",
                f"--broker-list={broker.bootstrap}",
                f"--input-topic={SOURCE}",
                "--input-partition=0",
                f"--output-topic={TARGET}",
                "--consumer-group=copier",
                "--transactional-id=copier",
                f"--transaction-size={PER_TRANSACTION}",
                f"--max-messages={records}",
            )
        return {"copied": parse_copied(output, records), "copy-cpu": copying.seconds / (records / 1e6)}


def parse_copied(output: str, records: int) -> float:
    """Return the copier's rate from the end of its first transaction, which waits for the coordinators, on.

    It reports once for each transaction, in a line of JSON.
    """
    reports = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    begun = [report for report in reports if report["totalProcessed"] > 0]
    if not begun or begun[-1]["totalProcessed"] < records:
        raise tools.ToolError(f"TransactionalMessageCopier did not copy {records} records:\n{output[-2000:]}")
    seconds = (_time(begun[-1]["time"]) - _time(begun[0]["time"])).total_seconds()
    if seconds <= 0:
        raise tools.ToolError(f"TransactionalMessageCopier reported no time:\n{output[-2000:]}")
    return float(begun[-1]["totalProcessed"] - begun[0]["totalProcessed"]) / seconds


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y/%m/%d %H:%M:%S:%f")
