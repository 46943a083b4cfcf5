"""A blocking Kafka client, for pipelines: few connections, whole record batches, no threads."""

from __future__ import annotations

from headwater.client.cluster import EARLIEST, LATEST, Cluster, Coordinator, TopicInfo
from headwater.client.connection import Connection
from headwater.client.errors import (
    AuthenticationFailed,
    BadAnswer,
    BrokerError,
    ClientError,
    UnknownTopic,
    Unreachable,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "AuthenticationFailed",
    "BadAnswer",
    "BrokerError",
    "ClientError",
    "Cluster",
    "Connection",
    "Coordinator",
    "TopicInfo",
    "UnknownTopic",
    "Unreachable",
]
