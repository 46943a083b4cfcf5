"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

from headwater.cli.options import Address, OptionalAddress

if TYPE_CHECKING:
    from headwater.views import ViewStore

C = TypeVar("C", bound=Callable[..., Any])

DATA = "./headwater-data"


def app_argument(command: C) -> C:
    """Give a command the argument `APP`; it gets `app`, a path."""
    return click.argument("app", metavar="APP", type=click.Path(exists=True, dir_okay=False, path_type=Path))(
        command
    )


def data_option(command: C) -> C:
    """Give a command the option `--data`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=DATA,
        show_default=True,
        metavar="DIR",
        help="The directory of checkpoints and views; it is made where it is missing.",
    )(command)


def broker_url_option(help_text: str) -> Callable[[C], C]:
    """Return what gives a command the option `--broker`, a URL of Headwater's broker or Kafka's."""
    return click.option(
        "--broker",
        default="kafka://127.0.0.1:9092",
        envvar="HEADWATER_BROKER",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help=help_text,
    )


def views_option(command: C) -> C:
    """Give a command the option `--views`; it gets None where `views_url` is to make one of `--data`."""
    return click.option(
        "--views",
        metavar="URL",
        envvar="HEADWATER_VIEWS",
        show_envvar=True,
        help="Where views are kept: sqlite:///PATH, postgresql://… or redis://…  [default: sqlite:///DIR/views.db]",
    )(command)


def kafka_option(command: C) -> C:
    """Give a command the option `--kafka`."""
    return click.option(
        "--kafka",
        type=Address(),
        default="127.0.0.1:9092",
        show_default=True,
        help="The address to accept Kafka clients on.",
    )(command)


def amqp_option(command: C) -> C:
    """Give a command the option `--amqp`."""
    return click.option(
        "--amqp",
        type=OptionalAddress(),
        default="127.0.0.1:5672",
        show_default=True,
        help="The address to accept AMQP 0-9-1 clients on, or none.",
    )(command)


def insecure_listen_option(command: C) -> C:
    """Give a command the option `--insecure-listen`."""
    return click.option(
        "--insecure-listen",
        is_flag=True,
        help="Listen beyond this machine though nobody has to authenticate.",
    )(command)


def events_option(command: C) -> C:
    """Give a command the option `--events`; it gets a tuple of names."""
    return click.option(
        "--events",
        multiple=True,
        metavar="STORE",
        help="Serve this event store, which is made where it is missing; may be given several times.",
    )(command)


def private_webhooks_option(command: C) -> C:
    """Give a command the option `--allow-private-webhooks`."""
    return click.option(
        "--allow-private-webhooks",
        is_flag=True,
        envvar="HEADWATER_ALLOW_PRIVATE_WEBHOOKS",
        show_envvar=True,
        help="Let alerts be sent to private, loopback and link-local addresses too.",
    )(command)


def log_format_option(command: C) -> C:
    """Give a command the option `--log-format`."""
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How the log on stderr looks: lines for people, or one JSON object a line.",
    )(command)


def log_level_option(command: C) -> C:
    """Give a command the option `--log-level`."""
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="The least severe message to log.",
    )(command)


def master_option(command: C) -> C:
    """Give a command the option `--master`."""
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N] for N tasks at once on this machine, or a cluster's URL.",
    )(command)


def views_url(views: str | None, data: Path) -> str:
    """Return the address of the views, by default in the data directory."""
    return views or f"sqlite:///{data / 'views.db'}"


def existing_views(views: str | None, data: Path) -> ViewStore:
    """Open the store of the views for a command that looks at it: in the wrong directory it is to make none."""
    from headwater.views import open_store

    url = views_url(views, data)
    parts = urlsplit(url)
    if parts.scheme == "sqlite" and not Path(unquote(parts.path[1:])).exists():
        raise click.ClickException(
            f"there is no view store {unquote(parts.path[1:])}: nothing has run there; start the application,"
            " or say with --data or --views where it runs"
        )
    return open_store(url)
