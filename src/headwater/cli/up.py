"""`headwater up`: broker, capture, run and serve of one application on one machine."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import Address
from headwater.cli.shared_options import (
    amqp_option,
    data_option,
    events_option,
    kafka_option,
    log_level_option,
    master_option,
    private_webhooks_option,
    views_option,
    views_url,
)


@click.command("up")
@click.argument(
    "app",
    metavar="[APP]",
    required=False,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@data_option
@kafka_option
@amqp_option
@click.option(
    "--http",
    type=Address(),
    default="127.0.0.1:8080",
    show_default=True,
    help="The address of views, live feeds, ingest and the page.",
)
@views_option
@events_option
@private_webhooks_option
@master_option
@log_level_option
@click.pass_context
def up_command(
    ctx: click.Context,
    app: Path | None,
    data: Path,
    kafka: tuple[str, int],
    amqp: tuple[str, int] | None,
    http: tuple[str, int],
    views: str | None,
    events: tuple[str, ...],
    allow_private_webhooks: bool,
    master: str,
    log_level: str,
) -> None:
    """Run a broker, an application's pipelines and their views until Ctrl-C.

    Tables that have a source are captured from their databases; indexes, caches and warehouses are kept in step.
    Without APP there are the broker and the page. Everything is kept in --data, and goes on where it was when
    it is started again. Prints one line that starts with "ready", with the page's address. A second Ctrl-C
    does not wait for anything.
    """
    import asyncio

    from headwater.cli.stack import StackOptions, check, run_stack

    options = StackOptions(
        app=app,
        data=data,
        kafka=kafka,
        amqp=amqp,
        http=http,
        views=views_url(views, data),
        events=events,
        allow_private_webhooks=allow_private_webhooks,
        master=master,
        log_level=log_level,
    )
    check(options)
    ctx.exit(asyncio.run(run_stack(options)))
