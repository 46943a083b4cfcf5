"""`headwater consume`: records become lines of text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from headwater.cli.client import SECONDS, Connection, broker_options, connect
from headwater.cli.lines import as_json as record_as_json
from headwater.cli.output import json_option, wants_json
from headwater.cli.positions import EARLIEST, LATEST, Position, PositionType

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_BATCH = 1000
_WAIT_SECONDS = 0.2


@click.command("consume")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=PositionType(),
    help="earliest, latest, an offset or a time. Without it: earliest, or where the group is.",
)
@click.option("--count", type=click.IntRange(min=0), metavar="N", help="End after so many records.")
@click.option(
    "--partition",
    "chosen",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="P",
    help="Only this partition; several times.",
)
@click.option("--group", metavar="NAME", help="Consume as a member of a group, and commit what was printed.")
@click.option(
    "--follow/--exit-at-end",
    default=None,
    help="Wait for more at the end, or end there. Without either: wait on a terminal, end in a pipe.",
)
@click.option(
    "--isolation",
    type=click.Choice(["committed", "uncommitted"]),
    default="committed",
    show_default=True,
    help="Whether records of transactions that are open or aborted are left out.",
)
@json_option
@broker_options
def consume_command(
    client: dict[str, str],
    topic: str,
    start: Position | None,
    count: int | None,
    chosen: tuple[int, ...],
    group: str | None,
    follow: bool | None,
    isolation: str,
    as_json: bool,
) -> None:
    """Print the records of a topic: for people on a terminal, as JSON lines in a pipe."""
    if group is not None and (start is not None or chosen):
        raise click.UsageError("a group knows where it is: leave out --from and --partition, or --group.")
    with connect(client) as connection:
        reader = Reader(connection, isolation=isolation, group=group)
        try:
            reader.open(topic, chosen, start)
            stop_at_end = not sys.stdout.isatty() if follow is None else not follow
            write = _writer(sys.stdout, as_json=wants_json(as_json))
            for messages in reader.read(count, stop_at_end=stop_at_end):
                for message in messages:
                    write(message)
                sys.stdout.flush()
                reader.commit()
        except KeyboardInterrupt:
            pass
        finally:
            reader.close()


class Reader:
    """A consumer of one topic that knows when it is at the end."""

    def __init__(self, connection: Connection, *, isolation: str, group: str | None) -> None:
        self._connection = connection
        self._group = group
        self._ended: set[tuple[str, int]] = set()
        self._assigned: set[tuple[str, int]] | None = None
        self._printed: dict[tuple[str, int], int] = {}
        more: dict[str, object] = {"group_id": group} if group else {}
        self._consumer: Consumer = connection.consumer(
            enable_partition_eof=True,
            isolation_level=f"read_{isolation}",
            auto_offset_reset="earliest",
            fetch_wait_max_ms=100,
            **more,
        )

    def open(self, topic: str, chosen: tuple[int, ...], start: Position | None) -> None:
        """Begin at a position of a topic's partitions, or where its group is."""
        from confluent_kafka import TopicPartition

        admin = self._connection.admin()
        found = admin.list_topics(timeout=SECONDS).topics.get(topic)
        if found is None:
            raise click.ClickException(f"there is no topic named {topic}")
        for partition in chosen:
            if partition not in found.partitions:
                raise click.ClickException(
                    f"{topic} has no partition {partition}: it has {len(found.partitions)}"
                )
        if self._group is not None:
            self._consumer.subscribe([topic], on_assign=self._take, on_revoke=self._give)
            return
        places = [TopicPartition(topic, partition) for partition in chosen or sorted(found.partitions)]
        self._assigned = {(place.topic, place.partition) for place in places}
        self._consumer.assign(_at(admin, places, start or EARLIEST))

    def read(self, count: int | None, *, stop_at_end: bool) -> Iterator[list[Message]]:
        """Yield records as they come, until there are `count`, or until the end."""
        left = count
        while left is None or left > 0:
            messages = self._consumer.consume(min(_BATCH, left or _BATCH), timeout=_WAIT_SECONDS)
            records = [message for message in messages if self._is_record(message)]
            if records:
                yield records
                if left is not None:
                    left -= len(records)
            if stop_at_end and self._assigned is not None and self._ended >= self._assigned:
                return

    def commit(self) -> None:
        """Have the group remember what was printed."""
        from confluent_kafka import TopicPartition

        if self._group is not None and self._printed:
            offsets = [TopicPartition(*key, offset) for key, offset in self._printed.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._printed = {}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        from confluent_kafka import KafkaError

        key: Any = (message.topic(), message.partition())
        error: KafkaError | None = message.error()
        if error is None:
            self._ended.discard(key)
            self._printed[key] = (message.offset() or 0) + 1
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(key)
        elif error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            raise self._connection.unreachable(error.str())
        elif not error.retriable():
            where = f"{key[0]}-{key[1]}: " if key[0] else ""
            raise click.ClickException(f"{where}{error.str()}")
        return False

    def _take(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._assigned = (self._assigned or set()) | {(place.topic, place.partition) for place in places}

    def _give(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        lost = {(place.topic, place.partition) for place in places}
        self._assigned = (self._assigned or set()) - lost
        self._ended -= lost


def _at(admin: Any, places: list[TopicPartition], start: Position) -> list[TopicPartition]:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    from headwater.cli.positions import resolve

    if start in (EARLIEST, LATEST):
        offset = OFFSET_END if start.latest else OFFSET_BEGINNING
        return [TopicPartition(place.topic, place.partition, offset) for place in places]
    return [TopicPartition(*key, offset) for key, offset in resolve(admin, places, start).items()]


def _writer(stream: IO[str], *, as_json: bool) -> Any:
    def write_json(message: Message) -> None:
        stream.write(_json(message) + "\n")

    def write_text(message: Message) -> None:
        stream.write(_human(message) + "\n")

    return write_json if as_json else write_text


def _timestamp(message: Message) -> int | None:
    kind, value = message.timestamp()
    return value if kind else None


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers()
    return headers or []


def _json(message: Message) -> str:
    return record_as_json(
        message.topic() or "",
        _number(message.partition()),
        _number(message.offset()),
        _timestamp(message),
        message.key(),
        message.value(),
        _headers(message),
    )


def _human(message: Message) -> str:
    """Return a record on one line: place, time, key, value and headers."""
    timestamp = _timestamp(message)
    when = "-" if timestamp is None else _when(timestamp)
    words = [click.style(f"{message.partition()}:{message.offset()} {when}", dim=True)]
    if message.key() is not None:
        words.append(click.style(_show(message.key()), fg="cyan"))
    words.append(_show(message.value()))
    words += [click.style(f"{name}={_show(content)}", fg="green") for name, content in _headers(message)]
    return " ".join(words)


def _when(timestamp: int) -> str:
    try:
        when = datetime.fromtimestamp(timestamp / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _show(data: bytes | None) -> str:
    """Return bytes for a person, with nothing in it that a terminal would obey."""
    from headwater.cli.lines import encode_bytes

    shown = encode_bytes(data)
    if shown is None:
        return "(none)"
    if isinstance(shown, dict):
        return f"(base64) {shown['base64']}"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown)
