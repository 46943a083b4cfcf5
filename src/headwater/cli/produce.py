"""`headwater produce`: lines of text become records."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING

import click

from headwater.cli.client import SECONDS, Connection, broker_options, connect, describe
from headwater.cli.lines import BadLine, Line, parse_json, parse_plain, read_lines
from headwater.cli.options import Assignment
from headwater.cli.output import note

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_POLL_EVERY = 1000
_FLUSH_SECONDS = 0.05


class Sender:
    """Hands records to a producer, and knows what became of them."""

    def __init__(self, connection: Connection, topic: str, *, codec: str, acks: str) -> None:
        from confluent_kafka import Producer

        self._connection = connection
        self._topic = topic
        self._error = ""
        self.sent = self.failed = 0
        self._producer = Producer(
            connection.properties(
                acks=acks,
                compression_type=codec,
                enable_idempotence=acks == "all",
                linger_ms=5,
                message_timeout_ms=30_000,
                queue_buffering_max_messages=100_000,
            )
            | {"delivery.report.only.error": True}
        )
        # An idempotent producer that finds no broker at once looks again half a second later.
        self._producer.list_topics(timeout=SECONDS)

    def send(self, line: Line) -> None:
        """Hand over one record, waiting while too many are under way."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    line.value,
                    line.key,
                    partition=line.partition,
                    timestamp=line.timestamp,
                    headers=list(line.headers) or None,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                reason = f"{self._topic}: {describe(error)} (record {self.sent + 1:,})"
                raise click.ClickException(reason) from error
            else:
                break
        self.sent += 1
        if self.sent % _POLL_EVERY == 0:
            self._producer.poll(0)
        if self.failed:
            raise click.ClickException(self._error)

    def flush(self) -> None:
        """Return when the broker has answered for every record, or raise what it answered."""
        while self._producer.flush(_FLUSH_SECONDS):
            pass
        if self.failed:
            raise click.ClickException(self._error)

    def abandon(self) -> None:
        """Drop what has not been sent."""
        self._producer.purge()
        self._producer.flush(1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        from confluent_kafka import KafkaError

        if error is None:
            return
        self.failed += 1
        if error.code() == KafkaError._MSG_TIMED_OUT:
            self._error = str(self._connection.unreachable("no answer in time").message)
        else:
            self._error = f"{self._topic}: {error.str()}"


@click.command("produce")
@click.argument("topic")
@click.option(
    "--file",
    "source",
    type=click.File("rb"),
    default="-",
    metavar="FILE",
    help="Read from here; without it, from stdin.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a JSON object with key, value, headers, partition, timestamp.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="What ends the key at the start of each line; without it there is none.",
)
@click.option(
    "-H",
    "--headers",
    "headers",
    type=Assignment(),
    multiple=True,
    help="A header for every record; several times.",
)
@click.option(
    "--codec",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How to compress batches of records.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="What the broker must have done before a record counts.",
)
@broker_options
def produce_command(
    client: dict[str, str],
    topic: str,
    source: IO[bytes],
    as_json: bool,
    key_separator: str | None,
    headers: tuple[tuple[str, str], ...],
    codec: str,
    acks: str,
) -> None:
    """Produce a record for each line, from stdin or a file.

    Ends with status 1 at the first line that is no record, or at the first record that the broker refuses.
    """
    separator = key_separator.encode() if key_separator else None
    common = tuple((name, value.encode()) for name, value in headers)

    def parse(text: bytes) -> Line:
        if not as_json:
            return parse_plain(text, separator, common)
        line = parse_json(text, int(time.time() * 1000))
        return Line(line.value, line.key, (*common, *line.headers), line.partition, line.timestamp)

    if as_json and separator is not None:
        raise click.UsageError("--json lines hold their own keys: leave out --key-separator.")
    with connect(client) as connection:
        connection.admin()
        sender = Sender(connection, topic, codec=codec, acks=acks)
        began = time.monotonic()
        try:
            for line in read_lines(source, parse, "record"):
                sender.send(line)
            sender.flush()
        except KeyboardInterrupt:
            sender.flush()
        except BadLine as error:
            sender.flush()
            message = f"{error}; the {sender.sent:,} records before it were produced"
            raise click.ClickException(message) from None
        except click.ClickException:
            sender.abandon()
            raise
        seconds = time.monotonic() - began
    rate = sender.sent / seconds if seconds else 0
    records = "record" if sender.sent == 1 else "records"
    note(f"Produced {sender.sent:,} {records} to {topic} in {seconds:.2f} s ({rate:,.0f} records/s).")
