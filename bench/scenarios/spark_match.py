"""How fast one fraud pattern is looked for: in Headwater, in Esper and in Flink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.brokers import Broker
from bench.cep import payments, peers
from bench.figures import ESPER, FLINK, HEADWATER, Better, Figure
from bench.scenarios.base import Scale
from bench.scenarios.spark_base import SparkScenario
from bench.spark.child import PipelineError, state

PAYMENTS = 2_000_000
PASSES = 2


class SparkMatch(SparkScenario):
    """Three or more small payments of a card and then a large one, within ten minutes, of 10,000 cards.

    Ours reads JSON from the broker and keeps its state so that it survives; the peers read a file and keep theirs in
    memory. All have to find the same matches.
    """

    name = "spark-match"
    sides = (ESPER, HEADWATER)
    optional_sides = (FLINK,)
    figures = (
        Figure("spark-match", "pattern over 10,000 cards", "events/s", Better.HIGHER, peer=ESPER),
        Figure("spark-match-cpu", "CPU, million events so matched", "s", Better.LOWER, peer=ESPER),
        Figure("spark-match-memory", "memory so matching", "MB", Better.LOWER, peer=ESPER),
        Figure("spark-match-flink", "the same beside Flink", "events/s", Better.HIGHER, peer=FLINK),
        Figure("spark-match-flink-cpu", "CPU beside Flink", "s", Better.LOWER, peer=FLINK),
        Figure("spark-match-flink-memory", "memory beside Flink", "MB", Better.LOWER, peer=FLINK),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Look for the pattern, and compare what was found with what there is."""
        count = scale.of(PAYMENTS)
        if self.side == HEADWATER:
            rows = payments.fill(broker.bootstrap, count)
            found = state("match", broker.bootstrap, scratch / "match", rows, passes=PASSES)
        else:
            found = (peers.esper if self.side == ESPER else peers.flink)(scratch, count)
        wanted = payments.expected(count)
        if {name: found[name] for name in wanted} != wanted:
            raise PipelineError(f"{self.side} found {found}, and there is {wanted}")
        names = ["spark-match", "spark-match-flink"]
        if self.side != HEADWATER:
            names.remove("spark-match" if self.side == FLINK else "spark-match-flink")
        return {
            f"{name}{end}": found[what]
            for name in names
            for end, what in (("", "rate"), ("-cpu", "cpu"), ("-memory", "memory"))
        }
