"""`headwater transactions`: who is in the middle of one, and since when."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import click

from headwater.cli.client import broker_options, connect
from headwater.cli.output import json_option, print_json, print_rows, print_table, wants_json

_DESCRIBE = (65, 0)
_LIST = (66, 0)
_NOT_HERE = {"not_coordinator", "transactional_id_not_found"}


@click.group("transactions")
def transactions_command() -> None:
    """List and describe transactions."""


@transactions_command.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only those in this state, such as Ongoing; several times.",
)
@json_option
@broker_options
def list_command(client: dict[str, str], states: tuple[str, ...], as_json: bool) -> None:
    """List the transactional ids, their producers and their states."""
    rows = []
    with connect(client) as connection, ExitStack() as stack:
        from headwater.cli.raw_client import accepted, brokers

        for broker in brokers(connection):
            stack.enter_context(broker)
            answer = accepted(broker.call(*_LIST, state_filters=states, producer_id_filters=()))
            if answer.unknown_state_filters:
                raise click.ClickException(f"there is no state {', '.join(answer.unknown_state_filters)}")
            rows += [
                {
                    "transactional_id": item.transactional_id,
                    "producer_id": item.producer_id,
                    "state": item.transaction_state,
                }
                for item in answer.transaction_states
            ]
    rows.sort(key=lambda row: str(row["transactional_id"]))
    print_rows(rows, ["transactional_id", "producer_id", "state"], as_json=as_json)


@transactions_command.command("describe")
@click.argument("transactional_id", metavar="ID")
@json_option
@broker_options
def describe_command(client: dict[str, str], transactional_id: str, as_json: bool) -> None:
    """Describe the transaction of a transactional id: its producer, its age and its partitions."""
    with connect(client) as connection, ExitStack() as stack:
        from headwater.cli.raw_client import accepted, brokers

        found = None
        for broker in brokers(connection):
            stack.enter_context(broker)
            [state] = broker.call(*_DESCRIBE, transactional_ids=(transactional_id,)).transaction_states
            if not state.error_code or state.error_code.name not in _NOT_HERE:
                found = accepted(state)
    if found is None:
        raise click.ClickException(f"there is no transactional id {transactional_id}")
    document = _document(found)
    if wants_json(as_json):
        print_json(document)
        return
    rows = [{"field": name.replace("_", " "), "value": value} for name, value in document.items()]
    print_table(rows, ["field", "value"])


def _document(state: Any) -> dict[str, Any]:
    started: datetime | None = state.transaction_start_time
    since_epoch = started.timestamp() if started is not None else -1.0
    is_open = since_epoch > 0
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": int(state.transaction_timeout.total_seconds() * 1000),
        "started": started.astimezone(UTC).isoformat(timespec="milliseconds")
        if started and is_open
        else None,
        "open_seconds": round(time.time() - since_epoch, 3) if is_open else None,
        "partitions": [
            f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions
        ],
    }
