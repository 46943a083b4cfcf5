"""A transactional producer of whole record batches, with its place in the input kept in the transaction.

It does what Kafka's own producer does at `transactional.id`, for batches that somebody else encoded:

    InitProducerId                    a new epoch: whoever had the id before is fenced, its transaction aborted
    AddPartitionsToTxn, Produce…      a batch is given producer id, epoch, sequence and checksum here
    AddOffsetsToTxn, TxnOffsetCommit  how far the input has been read, visible only with the records
    EndTxn                            both, or neither

The versions are those before transactions took their partitions in by themselves (KIP-890): every broker
since Kafka 2.5 has them, and Kafka 4 checks each Produce of such a client against its transaction.

A request that went unanswered is sent again. Sequences make that safe for Produce: a broker that has the
batch already says so. The other requests come to the same when they are repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.client.cluster import Cluster, Coordinator, check
from headwater.client.errors import BrokerError
from headwater.core.errors import ErrorCode
from headwater.record.batch import TRANSACTIONAL, checksum, read_header
from headwater.wire.kafka.versions import Api

__all__ = ["Fenced", "TransactionalWriter", "max_batch_bytes"]

_INIT_PRODUCER_ID_VERSION = 4
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 3
_TXN_OFFSET_COMMIT_VERSION = 3
_END_TXN_VERSION = 3
_PRODUCE_VERSION = 8
_DESCRIBE_CONFIGS_VERSION = 4
_TOPIC_RESOURCE = 2

_TIMEOUT_MS = 5 * 60_000
"""How long a transaction may take before its broker gives it up; brokers allow 15 minutes."""
_PRODUCE_MS = 30_000
_LARGEST_SEQUENCE = 0x7FFFFFFF
_KAFKA_MAX_BATCH = 1024 * 1024 + 12
"""`max.message.bytes` unless a topic says otherwise."""

_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_PRODUCER = struct.Struct(">qhi")  # producer id, producer epoch, base sequence
_PRODUCER_AT = 43

_FENCED = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
    }
)


class Fenced(BrokerError):
    """Another producer has the transactional id now, or the transaction took longer than it may."""


class TransactionalWriter:
    """One transactional id, from now on this writer's until another one opens it.

    >>> writer = TransactionalWriter(cluster, "shop.order_status")   # doctest: +SKIP
    >>> writer.begin("order_status", [0, 1])   # doctest: +SKIP
    >>> writer.produce("order_status", {0: batch})   # doctest: +SKIP
    >>> writer.commit()   # doctest: +SKIP

    After an error the state of the transaction is not known: open a new writer, which aborts it.
    """

    produce_version = _PRODUCE_VERSION

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int = _TIMEOUT_MS) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._coordinator = Coordinator.of_transactions(transactional_id)
        self._sequences: dict[tuple[str, int], int] = {}
        answer = self._call(
            Api.INIT_PRODUCER_ID,
            _INIT_PRODUCER_ID_VERSION,
            {"transactional_id": transactional_id, "transaction_timeout": timeout_ms},
        )
        self.producer_id: int = answer.producer_id
        self.producer_epoch: int = answer.producer_epoch

    def begin(self, topic: str, partitions: Iterable[int]) -> None:
        """Open a transaction, or widen it, by the partitions that it is going to write."""
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.producer_epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        self._call(Api.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION, body)

    def produce(self, topic: str, batches: Mapping[int, bytearray]) -> dict[int, int]:
        """Write one batch to each of some partitions; they are stamped where they lie.

        Returns the first offset of each, or -1 where a broker had the batch already and did not say.
        """
        by_leader: dict[int, dict[int, bytearray]] = {}
        for partition, batch in batches.items():
            self._stamp(topic, partition, batch)
            by_leader.setdefault(self._cluster.leader(topic, partition), {})[partition] = batch
        offsets: dict[int, int] = {}
        for some in by_leader.values():
            offsets |= self._cluster.retrying(lambda some=some: self._produce(topic, some))  # type: ignore[misc]
        return offsets

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let a group's offsets move with the transaction."""
        producer = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "group_id": group,
        }
        self._call(Api.ADD_OFFSETS_TO_TXN, _ADD_OFFSETS_VERSION, producer)
        partitions = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in offsets.items()
        ]
        body = {**producer, "member_id": "", "topics": [{"name": topic, "partitions": partitions}]}
        self._call(Api.TXN_OFFSET_COMMIT, _TXN_OFFSET_COMMIT_VERSION, body, node=Coordinator.of_group(group))

    def commit(self) -> None:
        """Decide for the transaction: once this returns, nothing can undo it.

        Headwater shows it at once; Kafka may show it a moment later.
        """
        self._end(committed=True)

    def abort(self) -> None:
        """Drop all of the transaction."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        self._call(Api.END_TXN, _END_TXN_VERSION, self._ending(committed=committed))

    def _ending(self, *, committed: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "committed": committed,
        }

    def _stamp(self, topic: str, partition: int, batch: bytearray) -> None:
        header = read_header(batch)
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = (sequence + header.record_count) & _LARGEST_SEQUENCE
        _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, header.attributes | TRANSACTIONAL)
        _PRODUCER.pack_into(batch, _PRODUCER_AT, self.producer_id, self.producer_epoch, sequence)
        _CRC.pack_into(batch, _CRC_AT, checksum(batch, 0, len(batch)))

    def _produce(self, topic: str, batches: Mapping[int, bytearray]) -> dict[int, int]:
        data = [{"index": partition, "records": batch} for partition, batch in batches.items()]
        body = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": _PRODUCE_MS,
            "topic_data": [{"name": topic, "partition_data": data}],
        }
        leader = self._cluster.leader(topic, next(iter(batches)))
        answer = self._cluster.request(Api.PRODUCE, self.produce_version, body, node=leader, resend=False)
        offsets: dict[int, int] = {}
        for named in answer.responses:
            for result in named.partition_responses:
                # What a lost answer was about: the batch is there, and once.
                if result.error_code != ErrorCode.duplicate_sequence_number:
                    self._check(result.error_code, f"{topic}-{result.index}", result.error_message)
                offsets[result.index] = result.base_offset
        return offsets

    def _call(
        self, api: Api, version: int, body: Mapping[str, Any], *, node: Coordinator | None = None
    ) -> Any:
        def attempt() -> Any:
            answer = self._cluster.request(api, version, body, node=node or self._coordinator, resend=False)
            for code in _codes(answer):
                self._check(code, f"transactional id {self.transactional_id}")
            return answer

        return self._cluster.retrying(attempt)

    def _check(self, code: int, what: str, message: str | None = None) -> None:
        if code in _FENCED:
            raise Fenced(
                code, what, "another producer has opened this transactional id, or its transaction timed out"
            )
        check(code, what, message)


def _codes(answer: Any) -> Iterable[int]:
    """Yield the error codes of an answer, wherever this API keeps them."""
    if hasattr(answer, "error_code"):
        yield answer.error_code
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            yield partition.error_code
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for partition in topic.results_by_partition:
            yield partition.partition_error_code


def max_batch_bytes(cluster: Cluster, topic: str) -> int:
    """Return the largest record batch that a topic takes; Kafka's default where it may not be asked."""
    resource = {
        "resource_type": _TOPIC_RESOURCE,
        "resource_name": topic,
        "configuration_keys": ["max.message.bytes"],
    }
    answer = cluster.request(Api.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, {"resources": [resource]})
    for result in answer.results:
        for config in result.configs:
            if config.name == "max.message.bytes" and config.value:
                return int(config.value)
    return _KAFKA_MAX_BATCH
