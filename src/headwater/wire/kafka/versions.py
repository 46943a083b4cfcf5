"""Which APIs are served, in which versions, and which header goes with each.

The ranges are those that Kafka 4.3.0 advertises on a broker's listener, for the APIs that exist here.
A version from `flexible_from` on has tagged fields and compact lengths (KIP-482), in its header too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headwater.core.errors import ErrorCode

__all__ = [
    "SERVED",
    "Api",
    "Versions",
    "api_versions_answer",
    "is_served",
    "request_is_flexible",
    "response_header_is_flexible",
    "unsupported_api_versions_answer",
]


class Api(IntEnum):
    """The key of each API that is served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Versions(NamedTuple):
    """The first and last version of an API that is served, and the first flexible one."""

    first: int
    last: int
    flexible_from: int


_NEVER: Final = 1 << 15

SERVED: Final[Mapping[int, Versions]] = MappingProxyType(
    {
        Api.PRODUCE: Versions(3, 13, 9),
        Api.FETCH: Versions(4, 18, 12),
        Api.LIST_OFFSETS: Versions(1, 11, 6),
        Api.METADATA: Versions(0, 13, 9),
        Api.OFFSET_COMMIT: Versions(2, 10, 8),
        Api.OFFSET_FETCH: Versions(1, 10, 6),
        Api.FIND_COORDINATOR: Versions(0, 6, 3),
        Api.JOIN_GROUP: Versions(0, 9, 6),
        Api.HEARTBEAT: Versions(0, 4, 4),
        Api.LEAVE_GROUP: Versions(0, 5, 4),
        Api.SYNC_GROUP: Versions(0, 5, 4),
        Api.DESCRIBE_GROUPS: Versions(0, 6, 5),
        Api.LIST_GROUPS: Versions(0, 5, 3),
        Api.SASL_HANDSHAKE: Versions(0, 1, _NEVER),
        Api.API_VERSIONS: Versions(0, 4, 3),
        Api.CREATE_TOPICS: Versions(2, 7, 5),
        Api.DELETE_TOPICS: Versions(1, 6, 4),
        Api.DELETE_RECORDS: Versions(0, 2, 2),
        Api.INIT_PRODUCER_ID: Versions(0, 5, 2),  # 6 is unstable in 4.3: not advertised
        Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, 4),
        Api.ADD_PARTITIONS_TO_TXN: Versions(0, 5, 3),
        Api.ADD_OFFSETS_TO_TXN: Versions(0, 4, 3),
        Api.END_TXN: Versions(0, 5, 3),
        Api.WRITE_TXN_MARKERS: Versions(1, 2, 1),
        Api.TXN_OFFSET_COMMIT: Versions(0, 5, 3),
        Api.DESCRIBE_ACLS: Versions(1, 3, 2),
        Api.CREATE_ACLS: Versions(1, 3, 2),
        Api.DELETE_ACLS: Versions(1, 3, 2),
        Api.DESCRIBE_CONFIGS: Versions(1, 4, 4),
        Api.ALTER_CONFIGS: Versions(0, 2, 2),
        Api.DESCRIBE_LOG_DIRS: Versions(1, 5, 2),
        Api.SASL_AUTHENTICATE: Versions(0, 2, 2),
        Api.CREATE_PARTITIONS: Versions(0, 3, 2),
        Api.DELETE_GROUPS: Versions(0, 2, 2),
        Api.ELECT_LEADERS: Versions(0, 2, 2),
        Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, 1),
        Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, 0),
        Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, 0),
        Api.OFFSET_DELETE: Versions(0, 0, _NEVER),
        Api.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1, 1),
        Api.ALTER_CLIENT_QUOTAS: Versions(0, 1, 1),
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
        Api.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
        Api.DESCRIBE_CLUSTER: Versions(0, 2, 0),
        Api.DESCRIBE_PRODUCERS: Versions(0, 0, 0),
        Api.DESCRIBE_TRANSACTIONS: Versions(0, 0, 0),
        Api.LIST_TRANSACTIONS: Versions(0, 2, 0),
        Api.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1, 0),
        Api.CONSUMER_GROUP_DESCRIBE: Versions(0, 1, 0),
        Api.LIST_CONFIG_RESOURCES: Versions(0, 1, 0),
        Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, 0),
        Api.SHARE_GROUP_HEARTBEAT: Versions(1, 1, 0),
        Api.SHARE_GROUP_DESCRIBE: Versions(1, 1, 0),
        Api.SHARE_FETCH: Versions(1, 2, 0),
        Api.SHARE_ACKNOWLEDGE: Versions(1, 2, 0),
        Api.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1, 0),
        Api.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0, 0),
        Api.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0, 0),
    }
)

# librdkafka switches compression and idempotence off when Produce does not start at 0, so Kafka 4
# advertises versions that it refuses (KAFKA-18659).
_ADVERTISED_FIRST: Final = {Api.PRODUCE: 0}

# The feature levels a cluster has agreed on (KIP-584): the consumer group protocol of KIP-848, share groups
# (KIP-932), and transactions whose epoch rises with each (KIP-890).
_FEATURES: Final = {"group.version": (0, 1), "share.version": (0, 1), "transaction.version": (0, 2)}

# Older Java clients cannot read a feature whose lowest level is 0, so it waits for version 4 (KAFKA-17492).
_FEATURES_FROM_ZERO: Final = 4


def is_served(api_key: int, version: int) -> bool:
    """Tell whether a request of this API and version is answered."""
    served = SERVED.get(api_key)
    return served is not None and served.first <= version <= served.last


def request_is_flexible(api_key: int, version: int) -> bool:
    """Tell whether a request has tagged fields, in its header and in its body."""
    return version >= SERVED[api_key].flexible_from


def response_header_is_flexible(api_key: int, version: int) -> bool:
    """Tell whether a response's header ends in tagged fields.

    That of ApiVersions never does: the client reads it before it knows which versions the broker has.
    """
    return api_key != Api.API_VERSIONS and version >= SERVED[api_key].flexible_from


def api_versions_answer(version: int, *, features_epoch: int = 0) -> dict[str, Any]:
    """Give the answer to an ApiVersions request of a version that is served."""
    return {
        "error_code": ErrorCode.none,
        "api_keys": [_advertised(api_key) for api_key in SERVED],
        "throttle_time": 0,
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in _FEATURES.items()
            if low > 0 or version >= _FEATURES_FROM_ZERO
        ],
        "finalized_features_epoch": features_epoch,
        "finalized_features": [
            {"name": name, "min_version_level": high, "max_version_level": high}
            for name, (_, high) in _FEATURES.items()
        ],
    }


def unsupported_api_versions_answer() -> dict[str, Any]:
    """Give the answer to an ApiVersions request of a version that is not served, to be sent as version 0.

    It names the versions of ApiVersions itself, so that the client can ask again (KIP-511).
    """
    return {
        "error_code": ErrorCode.unsupported_version,
        "api_keys": [_advertised(Api.API_VERSIONS)],
    }


def _advertised(api_key: int) -> dict[str, int]:
    versions = SERVED[api_key]
    first = _ADVERTISED_FIRST.get(Api(api_key), versions.first)
    return {"api_key": int(api_key), "min_version": first, "max_version": versions.last}
