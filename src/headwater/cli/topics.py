"""`headwater topics`: what topics there are, and making, changing and deleting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.client import SECONDS, broker_options, connect, result
from headwater.cli.options import Assignment
from headwater.cli.output import json_option, note, print_json, print_rows, print_table, wants_json
from headwater.cli.positions import EARLIEST, LATEST, offsets_at
from headwater.cli.verify import verify_command

if TYPE_CHECKING:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it names no __all__
        AdminClient,
        ConfigEntry,
        TopicDescription,
    )

_config_option = click.option(
    "-c",
    "--config",
    "config",
    type=Assignment(),
    multiple=True,
    help="A topic setting, of those that `headwater settings` lists; may be given several times.",
)


@click.group("topics")
def topics_command() -> None:
    """List, describe, create, alter, delete and verify topics."""


topics_command.add_command(verify_command)


@topics_command.command("list")
@click.option("--internal", is_flag=True, help="List the broker's own topics too.")
@json_option
@broker_options
def list_command(client: dict[str, str], internal: bool, as_json: bool) -> None:
    """List the topics, with their records and partitions."""
    with connect(client) as connection:
        admin = connection.admin()
        found = admin.list_topics(timeout=SECONDS).topics.values()
        partitions = {str(topic.topic): len(topic.partitions) for topic in found}
        internals = _internal(admin, list(partitions))
        names = sorted(name for name in partitions if internal or name not in internals)
        records = _records(admin, {name: partitions[name] for name in names})
    rows = [
        {
            "topic": name,
            "partitions": partitions[name],
            "records": records[name],
            "internal": name in internals,
        }
        for name in names
    ]
    columns = ["topic", "partitions", "records", *(["internal"] if internal else [])]
    print_rows(rows, columns, as_json=as_json)


@topics_command.command("describe")
@click.argument("name")
@json_option
@broker_options
def describe_command(client: dict[str, str], name: str, as_json: bool) -> None:
    """Describe a topic: its partitions with their offsets, and the settings that are not the default."""
    with connect(client) as connection:
        admin = connection.admin()
        description = _describe(admin, name)
        document = {
            "topic": name,
            "id": _topic_id(description),
            "internal": description.is_internal,
            "partitions": _partition_rows(admin, description),
            "config": {
                entry.name: entry.value
                for entry in sorted(_config(admin, name).values(), key=lambda entry: entry.name)
                if not entry.is_default and not entry.is_read_only
            },
        }
    if wants_json(as_json):
        print_json(document)
        return
    rows: Any = document["partitions"]
    title = f"{name}  {document['id']}"
    print_table(rows, ["partition", "start", "end", "records", "leader", "replicas", "isr"], title=title)
    config: Any = document["config"]
    if config:
        print_table([{"setting": key, "value": value} for key, value in config.items()], ["setting", "value"])


@topics_command.command("create")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many partitions; without it, the broker's num.partitions.",
)
@_config_option
@broker_options
def create_command(
    client: dict[str, str], name: str, partitions: int | None, config: tuple[tuple[str, str], ...]
) -> None:
    """Create a topic."""
    with connect(client) as connection:
        from confluent_kafka.cimpl import NewTopic

        topic = NewTopic(name, num_partitions=partitions or -1, config=dict(config))
        result(connection.admin().create_topics([topic])[name])
    note(f"Created {name}.")


@topics_command.command("alter")
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="Have so many partitions, and not fewer."
)
@_config_option
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="A topic setting to take back to the broker's; several times.",
)
@broker_options
def alter_command(
    client: dict[str, str],
    name: str,
    partitions: int | None,
    config: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
) -> None:
    """Change a topic's settings, or give it more partitions."""
    if partitions is None and not config and not unset:
        raise click.UsageError("say what to change: --partitions, -c NAME=VALUE or --unset NAME.")
    with connect(client) as connection:
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
        )
        from confluent_kafka.cimpl import NewPartitions

        admin = connection.admin()
        _describe(admin, name)
        if config or unset:
            changes = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config
            ]
            changes += [
                ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset
            ]
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
            for future in admin.incremental_alter_configs([resource]).values():
                result(future)
        if partitions is not None:
            result(admin.create_partitions([NewPartitions(name, partitions)])[name])
    note(f"Altered {name}.")


@topics_command.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete_command(client: dict[str, str], names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and all their records."""
    with connect(client) as connection:
        admin = connection.admin()
        for name in names:
            _describe(admin, name)
        if not yes:
            click.confirm(f"Delete {', '.join(names)} and every record in it?", abort=True, err=True)
        for future in admin.delete_topics(list(names)).values():
            result(future)
    note(f"Deleted {', '.join(names)}.")


def _describe(admin: AdminClient, name: str) -> TopicDescription:
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    try:
        description: TopicDescription = result(admin.describe_topics(TopicCollection([name]))[name])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise click.ClickException(f"there is no topic named {name}") from None
        raise
    return description


def _internal(admin: AdminClient, names: list[str]) -> set[str]:
    from confluent_kafka import TopicCollection

    if not names:
        return set()
    futures = admin.describe_topics(TopicCollection(names))
    return {name for name, future in futures.items() if result(future).is_internal}


def _offsets(admin: AdminClient, partitions: dict[str, int]) -> dict[tuple[str, int], tuple[int, int]]:
    from confluent_kafka import TopicPartition

    places = [TopicPartition(name, i) for name, count in partitions.items() for i in range(count)]
    starts, ends = offsets_at(admin, places, EARLIEST), offsets_at(admin, places, LATEST)
    return {key: (starts[key], ends[key]) for key in starts}


def _records(admin: AdminClient, partitions: dict[str, int]) -> dict[str, int]:
    records = dict.fromkeys(partitions, 0)
    for (name, _), (start, end) in _offsets(admin, partitions).items():
        records[name] += end - start
    return records


def _partition_rows(admin: AdminClient, description: TopicDescription) -> list[dict[str, Any]]:
    offsets = _offsets(admin, {description.name: len(description.partitions)})
    rows = []
    for partition in description.partitions:
        start, end = offsets[description.name, partition.id]
        rows.append(
            {
                "partition": partition.id,
                "start": start,
                "end": end,
                "records": end - start,
                "leader": partition.leader.id if partition.leader else None,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
            }
        )
    return rows


def _config(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]).values()
    entries: dict[str, ConfigEntry] = result(future)
    return entries


def _topic_id(description: TopicDescription) -> str:
    import uuid

    topic_id: Any = description.topic_id
    value = (
        topic_id.get_most_significant_bits() % 2**64
    ) << 64 | topic_id.get_least_significant_bits() % 2**64
    return str(uuid.UUID(int=value))
