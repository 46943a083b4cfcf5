"""`headwater alerts`: messages that wait or were given up, and sending the latter again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headwater.cli.output import json_option, note, print_rows
from headwater.cli.shared_options import data_option, existing_views, views_option


@click.group("alerts")
def alerts_command() -> None:
    """List alerts and the messages that were given up, and send those again."""


@alerts_command.command("list")
@data_option
@views_option
@json_option
def list_command(data: Path, views: str | None, as_json: bool) -> None:
    """List alerts: how many messages wait, and how many were given up."""
    from headwater.views import ALERT

    with existing_views(views, data) as store:
        rows = []
        for view in store.definitions():
            if view.name.startswith(ALERT):
                waiting, dead = store.outbox.counts(view.name)
                rows.append({"alert": view.name.removeprefix(ALERT), "waiting": waiting, "dead": dead})
    print_rows(rows, ["alert", "waiting", "dead"], as_json=as_json)


@alerts_command.command("dead")
@click.argument("alert")
@click.option("--limit", default=100, show_default=True, help="How many messages at most.")
@data_option
@views_option
@json_option
def dead_command(alert: str, limit: int, data: Path, views: str | None, as_json: bool) -> None:
    """List the messages of an alert that were given up, newest first, and why."""
    from headwater.views import ALERT, UnknownView

    with existing_views(views, data) as store:
        try:
            found = store.outbox.dead(ALERT + alert, limit)
        except UnknownView:
            raise _unknown(alert) from None
    rows = [
        {"token": each.token, "tries": each.tries, "error": each.error, "row": json.loads(each.row)}
        for each in found
    ]
    print_rows(rows, ["token", "tries", "error", "row"], as_json=as_json)


@alerts_command.command("redrive")
@click.argument("alert")
@data_option
@views_option
def redrive_command(alert: str, data: Path, views: str | None) -> None:
    """Let the messages of an alert that were given up be sent again, with the same ids.

    A server that runs sends them within half a minute, and at once where it is asked to over HTTP:
    POST /alerts/ALERT/redrive.
    """
    from headwater.views import ALERT, UnknownView

    with existing_views(views, data) as store:
        try:
            count = store.outbox.redrive(ALERT + alert)
        except UnknownView:
            raise _unknown(alert) from None
    note(f"{count} messages are sent again.")


def _unknown(alert: str) -> click.ClickException:
    return click.ClickException(f"there is no alert named {alert}: headwater alerts list shows them")
