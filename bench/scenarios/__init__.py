"""The work that is measured: one module for each kind."""

from __future__ import annotations

from bench.scenarios.amqp_latency import AmqpLatency
from bench.scenarios.amqp_rates import Confirms, Queues, Transient
from bench.scenarios.amqp_raw import AmqpRaw
from bench.scenarios.amqp_ready import AmqpReady
from bench.scenarios.base import Scale, Scenario
from bench.scenarios.capture_large import CaptureLarge
from bench.scenarios.capture_postgres import CapturePostgres
from bench.scenarios.compaction import Compaction
from bench.scenarios.confluent import ConfluentProducer, SpreadProducer
from bench.scenarios.connections import Connections
from bench.scenarios.events_append import EventsAppend
from bench.scenarios.latency import Latency, LatencyWithoutSync
from bench.scenarios.memory import Memory
from bench.scenarios.partitions import ManyPartitions
from bench.scenarios.slow_consumer import SlowConsumer
from bench.scenarios.spark_idle import SparkIdle
from bench.scenarios.spark_join_tables import SparkJoinTables
from bench.scenarios.spark_keyed import SparkKeyed
from bench.scenarios.spark_live import SparkLive
from bench.scenarios.spark_lookup import SparkLookup
from bench.scenarios.spark_match import SparkMatch
from bench.scenarios.spark_read import SparkRead
from bench.scenarios.spark_searches import SparkSearches
from bench.scenarios.spark_topic import SparkTopic
from bench.scenarios.spark_window import SparkWindow
from bench.scenarios.startup import Startup
from bench.scenarios.throughput import Throughput
from bench.scenarios.transactions import Transactions
from bench.scenarios.view_commit import ViewCommit
from bench.scenarios.views_live import ViewsLive
from bench.scenarios.warehouse_rebuild import WarehouseRebuild

__all__ = ["SCENARIOS", "Scale", "Scenario"]

SCENARIOS: tuple[Scenario, ...] = (
    Startup(),
    Throughput(),
    ConfluentProducer(),
    SpreadProducer(),
    Transactions(),
    Compaction(),
    SlowConsumer(),
    Latency(),
    LatencyWithoutSync(),
    Memory(),
    Connections(),
    ManyPartitions(),
    AmqpReady(),
    Transient(),
    Confirms(),
    Queues(),
    AmqpLatency(),
    AmqpRaw(),
    EventsAppend(),
    CapturePostgres(),
    CaptureLarge(),
    SparkRead(),
    SparkWindow(),
    SparkTopic(),
    SparkLive(),
    SparkIdle(),
    SparkKeyed(),
    SparkLookup(),
    SparkMatch(),
    SparkSearches(),
    SparkJoinTables(),
    ViewCommit(),
    ViewsLive(),
    WarehouseRebuild(),
)
