"""The broker's metrics in Prometheus' text format, gathered at the moment somebody asks.

Names follow the Prometheus conventions: base units, `_total` for what only grows.
"""

from __future__ import annotations

import os
import resource
import time
from itertools import islice
from typing import TYPE_CHECKING

from headwater import __version__
from headwater.core.errors import ErrorCode
from headwater.core.exposition import Labels, Page
from headwater.core.histogram import Histogram
from headwater.wire.kafka.versions import Api

if TYPE_CHECKING:
    from headwater.net.kafka.listener import KafkaListener
    from headwater.net.node import Node

_PAGE = os.sysconf("SC_PAGESIZE")


def exposition(node: Node, listener: KafkaListener, loop_lag: Histogram) -> bytes:
    """Return every metric of a broker."""
    page = Page()
    _requests(page, node)
    _connections(page, node, listener)
    _overload(page, node, listener)
    _logs(page, node)
    _groups(page, node)
    if node.serves_queues:
        _queues(page, node)
    page.histogram(
        "headwater_sync_round_seconds",
        "How long a round of syncs took, from its start until those who waited were told.",
        node.commit.round_seconds,
    )
    page.histogram(
        "headwater_event_loop_lag_seconds",
        "How much later than asked for a timer of the event loop was called.",
        loop_lag,
    )
    _process(page, node)
    page.gauge(
        "headwater_metrics_omitted",
        "Topics, partitions and partitions of groups left out of here: more than headwater.metrics.max.series.",
        page.omitted,
    )
    return page.encode()


def _requests(page: Page, node: Node) -> None:
    counters = node.counters
    page.family(
        "headwater_requests_total", "counter", "Requests that arrived, by API.",
        [({"api": _api(key)}, count) for key, count in enumerate(counters.requests) if count],
    )  # fmt: skip
    page.family(
        "headwater_request_errors_total", "counter",
        "Errors answered, by API and code: each partition of Produce and Fetch, otherwise the whole request.",
        [
            ({"api": _api(key), "code": _code(code)}, count)
            for (key, code), count in sorted(counters.errors.items())
        ],
    )  # fmt: skip
    page.histogram(
        "headwater_produce_seconds",
        "How long a Produce request took until its answer, the sync included; one in 16 is timed.",
        counters.produce_seconds,
    )
    page.histogram(
        "headwater_fetch_seconds",
        "How long a Fetch request took until its answer, the wait for records included.",
        counters.fetch_seconds,
    )
    page.counter("headwater_records_in_total", "Records that producers appended.", counters.records_in)
    page.counter(
        "headwater_record_bytes_in_total", "Bytes of record batches appended.", counters.record_bytes_in
    )
    page.counter(
        "headwater_record_bytes_out_total", "Bytes of record batches fetched.", counters.record_bytes_out
    )


def _connections(page: Page, node: Node, listener: KafkaListener) -> None:
    counters = node.counters
    page.counter("headwater_network_bytes_in_total", "Bytes from clients.", counters.bytes_in)
    page.counter("headwater_network_bytes_out_total", "Bytes to clients.", counters.bytes_out)
    page.gauge("headwater_connections", "Connections of Kafka clients.", listener.connections)
    page.counter(
        "headwater_connections_opened_total", "Connections that clients opened.", counters.connections_opened
    )
    page.counter(
        "headwater_connections_refused_total",
        "Connections that the broker closed, for what was sent or because there were too many.",
        counters.connections_refused,
    )


def _overload(page: Page, node: Node, listener: KafkaListener) -> None:
    page.counter(
        "headwater_throttled_seconds_total",
        "How long clients were told to wait because of quotas and the limits of topics.",
        node.throttle.throttled_ms / 1000,
    )
    page.gauge(
        "headwater_disk_refusing",
        "1 while records are refused because the disk is as full as it may get.",
        int(node.disk.refusal is not None),
    )
    page.counter(
        "headwater_cold_reads_total",
        "Fetches that had to wait for records that were not in the page cache.",
        node.cold.reads,
    )
    memory = listener.request_memory
    page.gauge("headwater_request_memory_bytes", "Memory for requests that are arriving.", memory.held)
    page.gauge("headwater_requests_waiting", "Connections that wait for such memory.", memory.waiting)
    page.gauge(
        "headwater_response_memory_bytes",
        "Memory for responses that clients have not read yet.",
        listener.response_memory.held,
    )


def _logs(page: Page, node: Node) -> None:
    logs = list(node.logs)
    sizes: dict[str, int] = {}
    for log in logs:
        sizes[log.topic] = sizes.get(log.topic, 0) + log.size_bytes()
    limit = node.number("headwater.metrics.max.series")
    page.gauge("headwater_topics", "Topics.", len(sizes))
    page.gauge("headwater_partitions", "Partitions.", len(logs))
    page.gauge("headwater_log_bytes", "Bytes of all segments of all partitions.", sum(sizes.values()))
    page.gauge(
        "headwater_archived_bytes",
        "Bytes of the segments that are in the archive.",
        sum(log.size_bytes() - log.local_bytes() for log in logs),
    )
    archiving = node.upkeep.archiving
    page.counter(
        "headwater_archived_segments_total",
        "Segments that have moved to the archive.",
        archiving.segments_moved,
    )
    page.counter(
        "headwater_archive_failures_total",
        "Looks at a partition after which a segment was not in the archive that ought to be.",
        archiving.failures,
    )
    page.gauge(
        "headwater_partitions_failed",
        "Partitions that acknowledge nothing any more because the disk failed them.",
        sum(log.error is not None for log in logs),
    )
    page.family(
        "headwater_topic_log_bytes", "gauge", "Bytes of all segments of a topic.",
        [({"topic": topic}, size) for topic, size in islice(sizes.items(), limit)],
    )  # fmt: skip
    page.omitted += max(len(sizes) - limit, 0) + max(len(logs) - limit, 0)
    shown = logs[:limit]
    page.family(
        "headwater_log_end_offset", "gauge", "The offset that the next record of a partition gets.",
        [({"topic": log.topic, "partition": log.partition}, log.end_offset) for log in shown],
    )  # fmt: skip
    page.family(
        "headwater_log_start_offset", "gauge", "The first offset that a partition still has.",
        [({"topic": log.topic, "partition": log.partition}, log.start_offset) for log in shown],
    )  # fmt: skip


def _groups(page: Page, node: Node) -> None:
    offsets = node.groups.offsets
    page.gauge("headwater_groups", "Consumer and share groups.", len(node.groups.groups))
    limit = node.number("headwater.metrics.max.series")
    samples: list[tuple[Labels, float]] = []
    for group in offsets.group_ids():
        for (topic, partition), committed in offsets.of_group(group).items():
            log = node.logs.get(topic, partition)
            if log is None:
                continue
            if len(samples) >= limit:
                page.omitted += 1
                continue
            labels = {"group": group, "topic": topic, "partition": partition}
            samples.append((labels, max(log.high_watermark - committed.offset, 0)))
    for key, shared in node.shares.partitions.items():
        name = node.name_of(key.topic_id.bytes) or ""
        log = node.logs.get(name, key.partition)
        if log is None:
            continue
        if len(samples) >= limit:
            page.omitted += 1
            continue
        labels = {"group": key.group, "topic": name, "partition": key.partition}
        samples.append((labels, shared.lag(log.high_watermark)))
    page.family(
        "headwater_group_lag",
        "gauge",
        "Records of a partition that a group has not committed, or as a share group not done with, yet.",
        samples,
    )


def _queues(page: Page, node: Node) -> None:
    service, counters = node.queue_service, node.counters
    channels = [channel for connection in service.connections for channel in connection.channels.values()]
    held = sum(len(channel.unacked) for channel in channels)
    page.gauge("headwater_amqp_connections", "Connections of AMQP clients.", len(service.connections))
    page.gauge("headwater_amqp_channels", "Channels of AMQP clients.", len(channels))
    for name, text, count in (
        (
            "headwater_messages_published_total",
            "Messages that AMQP clients published.",
            counters.messages_published,
        ),
        (
            "headwater_messages_confirmed_total",
            "Messages that publishers were told are taken.",
            counters.messages_confirmed,
        ),
        (
            "headwater_messages_refused_total",
            "Messages that publishers were told are not taken.",
            counters.messages_refused,
        ),
        (
            "headwater_messages_returned_total",
            "Messages returned to their publishers: no queue was bound for them.",
            counters.messages_returned,
        ),
        (
            "headwater_messages_delivered_total",
            "Messages delivered to AMQP clients.",
            counters.messages_delivered,
        ),
        (
            "headwater_messages_acknowledged_total",
            "Messages that AMQP clients acknowledged.",
            counters.messages_to_acknowledge - counters.messages_given_back - held,
        ),
        (
            "headwater_messages_given_back_total",
            "Messages that clients rejected, or had not acknowledged when they went.",
            counters.messages_given_back,
        ),
    ):
        page.counter(name, text, count)
    queues = service.queues.values()
    page.gauge("headwater_queues", "Queues.", len(queues))
    page.gauge("headwater_queue_messages_ready", "Messages that wait in queues.", sum(map(len, queues)))
    page.gauge(
        "headwater_queue_messages_unacknowledged",
        "Messages delivered and not acknowledged.",
        sum(queue.unacked for queue in queues),
    )
    page.gauge("headwater_queue_memory_bytes", "Memory of messages that wait in queues.", service.budget.used)
    page.gauge(
        "headwater_delayed_messages",
        "Messages that wait for their time in delayed exchanges.",
        len(service.delayed),
    )


def _process(page: Page, node: Node) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    disk = os.statvfs(node.logs.path)
    page.gauge("headwater_disk_free_bytes", "Free bytes on the data's disk.", disk.f_bavail * disk.f_frsize)
    page.gauge("headwater_disk_bytes", "The size of the data's disk.", disk.f_blocks * disk.f_frsize)
    page.gauge(
        "headwater_recovery_seconds", "How long opening the data took at the start.", node.recovery_seconds
    )
    page.family("headwater_info", "gauge", "The version that runs.", [({"version": __version__}, 1)])
    with open("/proc/self/statm", "rb") as file:
        resident = int(file.read().split()[1]) * _PAGE
    page.gauge("process_resident_memory_bytes", "Resident memory.", resident)
    page.counter(
        "process_cpu_seconds_total", "User and system time of the processor.", usage.ru_utime + usage.ru_stime
    )
    page.gauge("process_open_fds", "Open file descriptors.", sum(1 for _ in os.scandir("/proc/self/fd")))
    page.gauge("process_start_time_seconds", "When the process started, since the epoch.", _started())


def _started() -> float:
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")


def _api(key: int) -> str:
    return Api(key).name.lower()


def _code(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
