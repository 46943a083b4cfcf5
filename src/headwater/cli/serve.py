"""`headwater serve`: views, live feeds, ingest, alerts and the page over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import Address
from headwater.cli.shared_options import (
    events_option,
    insecure_listen_option,
    log_format_option,
    log_level_option,
    private_webhooks_option,
)


@click.command("serve")
@click.argument(
    "application", metavar="[APP]", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--views",
    default="sqlite:///headwater-data/views.db",
    envvar="HEADWATER_VIEWS",
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Where views are kept: sqlite:///PATH, postgresql://… or redis://…; it is made where it is missing.",
)
@click.option(
    "--broker",
    envvar="HEADWATER_BROKER",
    metavar="URL",
    help="The broker that posted records go to, and whose topics the page shows, like kafka://127.0.0.1:9092.",
)
@click.option(
    "--http",
    type=Address(),
    default="127.0.0.1:8080",
    show_default=True,
    help="The address to answer HTTP on.",
)
@insecure_listen_option
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name that this server goes by, besides localhost and addresses; may be given several times.",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    default="headwater-data/tokens",
    show_default=True,
    metavar="FILE",
    help="The file of tokens, which `headwater tokens` makes: once it holds one, nobody is let in without.",
)
@events_option
@click.option(
    "--events-data",
    type=click.Path(file_okay=False, path_type=Path),
    default="headwater-data/events",
    show_default=True,
    metavar="DIR",
    help="The directory of the event stores' indexes.",
)
@click.option(
    "--derived",
    type=click.Path(file_okay=False, path_type=Path),
    default="headwater-data/derived",
    show_default=True,
    metavar="DIR",
    help="The directory of the search indexes that APP declares.",
)
@private_webhooks_option
@log_format_option
@log_level_option
@click.pass_context
def serve_command(
    ctx: click.Context,
    application: Path | None,
    views: str,
    broker: str | None,
    http: tuple[str, int],
    insecure_listen: bool,
    names: tuple[str, ...],
    tokens: Path,
    events: tuple[str, ...],
    events_data: Path,
    derived: Path,
    allow_private_webhooks: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Serve views, feeds and the page until SIGTERM or Ctrl-C.

    With APP, posted records are checked against its topics' schemas, its webhooks are answered, and its alerts
    are sent. Prints one line
    that starts with "ready" once it answers.
    """
    from headwater.cli.extras import needs
    from headwater.cli.logging import set_up_logging
    from headwater.core.urls import KafkaUrl

    needs("starlette", extra="serve")
    from headwater.serve.server import ServeOptions, run_server

    set_up_logging(style=log_format, level=log_level)
    options = ServeOptions(
        views=views,
        http=http,
        application=application,
        broker=KafkaUrl.parse(broker) if broker else None,
        insecure_listen=insecure_listen,
        names=names,
        tokens=tokens,
        events=events,
        events_data=events_data,
        derived=derived,
        allow_private_webhooks=allow_private_webhooks,
    )
    ctx.exit(run_server(options))
