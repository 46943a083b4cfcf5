"""Transactions by the protocol of Kafka 4 (KIP-890): one request less, and an epoch for each transaction.

A partition is added by the first Produce that names it, and EndTxn raises the producer's epoch: what is still on
its way from an earlier transaction cannot get into a later one.

    InitProducerId   as before
    Produce…         each adds its partition
    EndTxn           its answer has the epoch that the next transaction is written under
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.client.cluster import Cluster
from headwater.client.transactions import TransactionalWriter
from headwater.wire.kafka.versions import Api

__all__ = ["ImplicitWriter", "open_writer"]

_API_VERSIONS_VERSION = 3
_FEATURE = "transaction.version"
_PRODUCE_VERSION = 12
_END_TXN_VERSION = 5


class ImplicitWriter(TransactionalWriter):
    """A transactional writer whose partitions take part by being written to."""

    produce_version = _PRODUCE_VERSION

    def begin(self, topic: str, partitions: Iterable[int]) -> None:
        """Do nothing: the first batch begins the transaction."""

    def _end(self, *, committed: bool) -> None:
        answer = self._call(Api.END_TXN, _END_TXN_VERSION, self._ending(committed=committed))
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()


def open_writer(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> TransactionalWriter:
    """Return a writer by the newest protocol that the cluster has switched on.

    It writes records alone: `commit_group` is the older protocol's.
    """
    answer = cluster.request(
        Api.API_VERSIONS,
        _API_VERSIONS_VERSION,
        {"client_software_name": "headwater", "client_software_version": "1"},
    )
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    newest = {key.api_key: key.max_version for key in answer.api_keys}
    has_it = (
        levels.get(_FEATURE, 0) >= 2
        and newest.get(Api.PRODUCE, 0) >= _PRODUCE_VERSION
        and newest.get(Api.END_TXN, 0) >= _END_TXN_VERSION
    )
    kind = ImplicitWriter if has_it else TransactionalWriter
    return kind(cluster, transactional_id, timeout_ms=timeout_ms)
