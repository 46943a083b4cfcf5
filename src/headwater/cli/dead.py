"""`headwater dead`: records that an application could not read, and sending them again after a fix."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.client import SECONDS, Connection, broker_options, connect
from headwater.cli.output import json_option, note, print_rows

if TYPE_CHECKING:
    from confluent_kafka import Message

C = TypeVar("C", bound=Callable[..., Any])

_SUFFIX = ".dead"
_SHOWN_BYTES = 200
_AT_ONCE = 1000
"""How many letters go in one transaction."""


@dataclass(frozen=True)
class Letter:
    """A dead letter, and the key by which it is known in its topic."""

    id: str
    reason: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def parse(cls, key: bytes, value: bytes) -> Letter:
        """Return what a pipeline wrote, or end with one line where it was not one that did."""
        try:
            said = json.loads(value)
            return cls(
                key.decode(),
                said["reason"],
                said["topic"],
                said["partition"],
                said["offset"],
                said["timestamp"],
                _bytes(said["key"]),
                _bytes(said["value"]),
                tuple((name, _bytes(content)) for name, content in said.get("headers", [])),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise click.ClickException(f"the record {key!r} is not a dead letter: {error}") from None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _selection(command: C) -> C:
    """Give a command the options that say which letters."""
    for option in (
        click.option("--topic", metavar="NAME", help="Only records that came from this topic."),
        click.option("--reason", metavar="TEXT", help="Only those whose reason contains this text."),
        click.argument("app"),
    ):
        command = option(command)
    return command


@click.group("dead")
def dead_command() -> None:
    """List and redrive the records that an application could not read.

    APP is the name of the application, or of its dead-letter topic, APP.dead.
    """


@dead_command.command("list")
@_selection
@json_option
@broker_options
def list_command(
    client: dict[str, str], app: str, topic: str | None, reason: str | None, as_json: bool
) -> None:
    """List dead letters: where each record lies, and why it could not be read."""
    with connect(client) as connection:
        letters = _selected(_letters(connection, _topic_name(app)), topic, reason)
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": letter.reason,
            "value": (letter.value or b"")[:_SHOWN_BYTES].decode(errors="replace"),
        }
        for letter in letters
    ]
    print_rows(rows, ["topic", "partition", "offset", "reason", "value"], as_json=as_json)


@dead_command.command("redrive")
@_selection
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
def redrive_command(
    client: dict[str, str], app: str, topic: str | None, reason: str | None, yes: bool
) -> None:
    """Send dead letters' records to their topics again, and take the letters out.

    Do it after a fix: what still cannot be read becomes a dead letter again. A record and the removal of its
    letter are one transaction, so none is sent twice.
    """
    with connect(client) as connection:
        name = _topic_name(app)
        found = _selected(_letters(connection, name), topic, reason)
        letters = [letter for letter in found if letter.key is not None or letter.value is not None]
        if len(letters) < len(found):
            note(f"{len(found) - len(letters)} letters are of batches that nobody can open, and stay.")
        if not letters:
            note("There is nothing to send.")
            return
        if not yes:
            topics = ", ".join(sorted({letter.topic for letter in letters}))
            click.confirm(f"Send {len(letters)} records to {topics} again?", abort=True, err=True)
        _redrive(connection, name, letters)
    note(f"Sent {len(letters)} records again.")


def _topic_name(app: str) -> str:
    return app if app.endswith(_SUFFIX) else app + _SUFFIX


def _selected(letters: Iterable[Letter], topic: str | None, reason: str | None) -> list[Letter]:
    return [
        letter
        for letter in letters
        if (topic is None or letter.topic == topic) and (reason is None or reason in letter.reason)
    ]


def _letters(connection: Connection, topic: str) -> list[Letter]:
    """Return the letters of a topic, the last word on each record alone, in the order of their origin."""
    found: dict[bytes, bytes] = {}
    for message in _read(connection, topic):
        key, value = message.key(), message.value()
        if not isinstance(key, bytes):
            continue
        if isinstance(value, bytes):
            found[key] = value
        else:
            found.pop(key, None)
    letters = [Letter.parse(key, value) for key, value in found.items()]
    return sorted(letters, key=lambda letter: (letter.topic, letter.partition, letter.offset))


def _read(connection: Connection, topic: str) -> Iterable[Message]:
    from headwater.cli.consume import Reader

    if topic not in connection.admin().list_topics(timeout=SECONDS).topics:
        # The commands around this one take a file: what is asked for may be the wrong topic.
        note(
            f"There is no topic {topic}: nothing was malformed, or APP is not the name of the application "
            'as in App("shop"), which is not its file.'
        )
        return
    reader = Reader(connection, isolation="committed", group=None)
    try:
        reader.open(topic, (), None)
        for messages in reader.read(None, stop_at_end=True):
            yield from messages
    finally:
        reader.close()


def _redrive(connection: Connection, name: str, letters: list[Letter]) -> None:
    from confluent_kafka import Producer

    producer = Producer(connection.properties(transactional_id=f"headwater-redrive-{name}"))
    producer.init_transactions(SECONDS)
    for start in range(0, len(letters), _AT_ONCE):
        producer.begin_transaction()
        for letter in letters[start : start + _AT_ONCE]:
            producer.produce(
                letter.topic,
                letter.value,
                letter.key,
                partition=letter.partition,
                headers=list(letter.headers) or None,
            )
            producer.produce(name, None, letter.id)
        producer.commit_transaction(SECONDS)
