"""Share groups for `headwater groups`, by requests that librdkafka has no calls for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.cli.client import Connection
    from headwater.cli.raw_client import RawClient

_LIST = (16, 5)
_API_VERSIONS = (18, 0)
_DESCRIBE = (77, 1)
_OFFSETS = (90, 1)
_NOT_HERE = {"not_coordinator", "group_id_not_found", "unsupported_version"}


def list_share_groups(connection: Connection) -> list[dict[str, Any]]:
    """Return the share groups of a cluster, with their states; none where its brokers know no share groups."""
    from headwater.cli.raw_client import accepted

    with _sharing(connection) as brokers:
        answers = [accepted(broker.call(*_LIST, types_filter=("share",))) for broker in brokers]
    return [_listed(group) for answer in answers for group in answer.groups]


def describe_share_group(connection: Connection, name: str) -> dict[str, Any] | None:
    """Return the members of a share group, and where each partition starts that it shares; None without such a group.

    A partition's lag counts what is still to be accepted, as the broker tells it.
    """
    from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequestGroup
    from kio.schema.types import GroupId

    from headwater.cli.raw_client import accepted

    with _sharing(connection) as brokers:
        for broker in brokers:
            [group] = broker.call(*_DESCRIBE, group_ids=(name,), include_authorized_operations=False).groups
            if group.error_code and group.error_code.name in _NOT_HERE:
                continue
            accepted(group)
            asked = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(name), topics=None)
            [offsets] = broker.call(*_OFFSETS, groups=(asked,)).groups
            return {
                "group": name,
                "state": group.group_state.lower(),
                "type": "share",
                "assignor": group.assignor_name or None,
                "members": [_member(member) for member in group.members],
                "partitions": _partitions(accepted(offsets)),
            }
    return None


@contextmanager
def _sharing(connection: Connection) -> Iterator[list[RawClient]]:
    """Connect to each broker that tells all that is asked for here."""
    from headwater.cli.raw_client import brokers

    with ExitStack() as stack:
        opened = [stack.enter_context(broker) for broker in brokers(connection)]
        yield [broker for broker in opened if _knows(broker)]


def _knows(broker: RawClient) -> bool:
    newest = {api.api_key: api.max_version for api in broker.call(*_API_VERSIONS).api_keys}
    return all(newest.get(key, -1) >= version for key, version in (_LIST, _DESCRIBE, _OFFSETS))


def _listed(group: Any) -> dict[str, Any]:
    return {"group": group.group_id, "state": group.group_state.lower(), "type": group.group_type.lower()}


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.client_host,
        "partitions": [
            f"{topic.topic_name}-{partition}"
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ],
    }


def _partitions(offsets: Any) -> list[dict[str, Any]]:
    found = [
        {
            "topic": topic.topic_name,
            "partition": place.partition_index,
            # A member has not fetched from it yet.
            "start": place.start_offset if place.start_offset >= 0 else None,
            "lag": place.lag if place.lag >= 0 else None,
        }
        for topic in offsets.topics
        for place in topic.partitions
    ]
    return sorted(found, key=lambda row: (str(row["topic"]), int(row["partition"])))
