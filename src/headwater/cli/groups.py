"""`headwater groups`: consumer and share groups, how far they are, and setting consumer groups elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.client import broker_options, connect, result
from headwater.cli.output import json_option, note, print_json, print_rows, print_table, wants_json
from headwater.cli.positions import LATEST, Key, Position, PositionType, look_up, resolve

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it names no __all__
        AdminClient,
        ConsumerGroupDescription,
    )


@click.group("groups")
def groups_command() -> None:
    """List, describe and delete groups, and reset consumer groups."""


@groups_command.command("list")
@json_option
@broker_options
def list_command(client: dict[str, str], as_json: bool) -> None:
    """List the groups."""
    with connect(client) as connection:
        from headwater.cli.share_groups import list_share_groups
        from headwater.core.errors import HeadwaterError

        listed = result(connection.admin().list_consumer_groups())
        for error in listed.errors:
            raise click.ClickException(str(error))
        rows = [
            {"group": group.group_id, "state": group.state.name.lower(), "type": group.type.name.lower()}
            for group in listed.valid
        ]
        try:
            rows += list_share_groups(connection)
        except (click.ClickException, HeadwaterError) as error:
            # Whoever authenticates as only librdkafka can is to see the others all the same.
            note(f"Share groups are left out: {error}")
    rows.sort(key=lambda row: str(row["group"]))
    print_rows(rows, ["group", "state", "type"], as_json=as_json)


@groups_command.command("describe")
@click.argument("name")
@json_option
@broker_options
def describe_command(client: dict[str, str], name: str, as_json: bool) -> None:
    """Describe a group: its members, and how far it is in each partition."""
    with connect(client) as connection:
        document = _consumer_group(connection.admin(), name)
        if document is None:
            from headwater.cli.share_groups import describe_share_group
            from headwater.core.errors import HeadwaterError

            try:
                document = describe_share_group(connection, name)
            except (click.ClickException, HeadwaterError) as error:
                # Whoever authenticates as only librdkafka can is told of the group, and not of that alone.
                text = f"there is no consumer group named {name}; share groups are left out: {error}"
                raise click.ClickException(text) from error
    if document is None:
        raise click.ClickException(f"there is no group named {name}")
    members, partitions = document["members"], document["partitions"]
    document["lag"] = sum(row["lag"] for row in partitions if row["lag"] is not None)
    if wants_json(as_json):
        print_json(document)
        return
    title = f"{name}  {document['state']}, {len(members)} members, lag {document['lag']:,}"
    shares = document["type"] == "share"
    columns = ["start", "lag"] if shares else ["committed", "end", "lag", "member", "client"]
    print_table(partitions, ["topic", "partition", *columns], title=title)
    if members:
        print_table(members, ["member", "client", "host", "partitions"])


@groups_command.command("reset")
@click.argument("name")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC", help="A topic; several times."
)
@click.option(
    "--partition",
    "chosen",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="P",
    help="Only this partition; several times.",
)
@click.option(
    "--to", "position", type=PositionType(), required=True, help="earliest, latest, an offset or a time."
)
@click.option("--execute", is_flag=True, help="Commit the offsets; without it, they are only shown.")
@json_option
@broker_options
def reset_command(
    client: dict[str, str],
    name: str,
    topics: tuple[str, ...],
    chosen: tuple[int, ...],
    position: Position,
    execute: bool,
    as_json: bool,
) -> None:
    """Set a group's committed offsets; it must have no members.

    Without --execute it only shows what it would do. A group that does not exist is made.
    """
    with connect(client) as connection:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        admin = connection.admin()
        places = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in _partitions(admin, topic, chosen)
        ]
        before = _committed(admin, name)
        targets = resolve(admin, places, position)
        if execute:
            offsets = [TopicPartition(*key, offset) for key, offset in targets.items()]
            request = ConsumerGroupTopicPartitions(name, offsets)
            answer = result(admin.alter_consumer_group_offsets([request])[name])
            for place in answer.topic_partitions:
                if place.error is not None:
                    raise click.ClickException(f"{place.topic}-{place.partition}: {place.error.str()}")
    rows = [
        {"topic": topic, "partition": partition, "from": before.get((topic, partition)), "to": offset}
        for (topic, partition), offset in sorted(targets.items())
    ]
    print_rows(rows, ["topic", "partition", "from", "to"], as_json=as_json)
    note(f"Reset {name}." if execute else "This is what --execute would do; nothing is changed.")


@groups_command.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete_command(client: dict[str, str], names: tuple[str, ...], yes: bool) -> None:
    """Delete groups and their offsets; they must have no members."""
    with connect(client) as connection:
        admin = connection.admin()
        if not yes:
            click.confirm(f"Delete {', '.join(names)} and its offsets?", abort=True, err=True)
        for name, future in admin.delete_consumer_groups(list(names)).items():
            from confluent_kafka import KafkaException

            try:
                result(future)
            except KafkaException as error:
                raise click.ClickException(f"{name}: {error.args[0].str()}") from None
    note(f"Deleted {', '.join(names)}.")


def _consumer_group(admin: AdminClient, name: str) -> dict[str, Any] | None:
    """Return a consumer group; Kafka before 4.0 describes one that is not there as a dead one without members."""
    from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

    try:
        group: ConsumerGroupDescription = result(admin.describe_consumer_groups([name])[name])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    if group.state == ConsumerGroupState.DEAD:
        return None
    return {
        "group": name,
        "state": group.state.name.lower(),
        "type": group.type.name.lower(),
        "assignor": group.partition_assignor or None,
        "members": [_member_row(member) for member in group.members],
        "partitions": _partition_rows(admin, name, group),
    }


def _committed(admin: AdminClient, name: str) -> dict[Key, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

    request = ConsumerGroupTopicPartitions(name)
    try:
        found = result(admin.list_consumer_group_offsets([request])[name]).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def _partitions(admin: AdminClient, topic: str, chosen: Iterable[int]) -> list[int]:
    from headwater.cli.client import SECONDS

    found = admin.list_topics(timeout=SECONDS).topics.get(topic)
    if found is None:
        raise click.ClickException(f"there is no topic named {topic}")
    there = sorted(found.partitions)
    for partition in chosen:
        if partition not in there:
            raise click.ClickException(f"{topic} has no partition {partition}: it has {len(there)}")
    return sorted(chosen) or there


def _member_row(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [f"{place.topic}-{place.partition}" for place in member.assignment.topic_partitions],
    }


def _partition_rows(admin: AdminClient, name: str, group: ConsumerGroupDescription) -> list[dict[str, Any]]:
    from confluent_kafka import TopicPartition

    committed = _committed(admin, name)
    owners = {
        (place.topic, place.partition): member
        for member in group.members
        for place in member.assignment.topic_partitions
    }
    keys = sorted(committed.keys() | owners.keys())
    ends = _ends(admin, [TopicPartition(*key) for key in keys])
    rows = []
    for key in keys:
        offset, end, owner = committed.get(key), ends.get(key), owners.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "committed": offset,
                "end": end,
                "lag": None if end is None or offset is None else max(end - offset, 0),
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
            }
        )
    return rows


def _ends(admin: AdminClient, places: list[TopicPartition]) -> dict[Key, int]:
    """Return the end of each partition that is still there."""
    from confluent_kafka import KafkaException

    ends = {}
    for key, future in look_up(admin, places, LATEST).items():
        try:
            ends[key] = result(future).offset
        except KafkaException:
            continue
    return ends
