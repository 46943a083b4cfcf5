"""The topic of an event store: made without retention, and refused where it would forget events."""

from __future__ import annotations

from headwater.client import Cluster, TopicInfo
from headwater.events.errors import EventError
from headwater.wire.kafka.versions import Api

__all__ = ["PARTITIONS", "open_topic"]

PARTITIONS = 4
"""How many partitions a store gets unless said otherwise; they stay as many."""

_KEEPS_ALL = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
_DESCRIBE_CONFIGS_VERSION = 4
_TOPIC_RESOURCE = 2


def open_topic(cluster: Cluster, name: str, partitions: int | None = None) -> TopicInfo:
    """Return a store's topic, which is made where it is missing; raise `EventError` where it forgets."""
    if not cluster.ensure_topic(name, partitions or PARTITIONS, _KEEPS_ALL):
        _check(cluster, name)
    info = cluster.topic(name)
    if partitions is not None and len(info.leaders) != partitions:
        raise EventError(
            f"the store {name} has {len(info.leaders)} partitions, not {partitions}, and that does not change: "
            "leave partitions out"
        )
    return info


def _check(cluster: Cluster, name: str) -> None:
    resource = {
        "resource_type": _TOPIC_RESOURCE,
        "resource_name": name,
        "configuration_keys": list(_KEEPS_ALL),
    }
    answer = cluster.request(Api.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, {"resources": [resource]})
    for result in answer.results:
        for config in result.configs:
            wanted = _KEEPS_ALL.get(config.name)
            if wanted is not None and config.value is not None and config.value != wanted:
                raise EventError(
                    f"the topic {name} has {config.name}={config.value} and would forget events: set it with "
                    f"`headwater topics alter {name} --config {config.name}={wanted}`, or name another topic"
                )
