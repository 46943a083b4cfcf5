"""`headwater run`: an application's pipelines."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import Assignment, Beginning
from headwater.cli.shared_options import (
    app_argument,
    broker_url_option,
    data_option,
    log_level_option,
    master_option,
    views_option,
    views_url,
)


@click.command("run")
@app_argument
@data_option
@broker_url_option("The broker whose topics are read and written, Headwater's or Kafka's.")
@views_option
@master_option
@click.option("--once", is_flag=True, help="Read all there is by now, and end: 0 if every query did.")
@click.option(
    "--from",
    "start",
    type=Beginning(),
    metavar="earliest|latest|TIME",
    help="Where a query without a checkpoint begins to read; TIME is like 2026-01-31T10:00:00Z."
    "  [default: earliest]",
)
@click.option(
    "--reset",
    multiple=True,
    metavar="QUERY",
    help="Forget a query's checkpoint, state and view, and start it over; may be given several times.",
)
@click.option("--spark-ui", type=int, metavar="PORT", help="Show Spark's own pages on this port.")
@click.option(
    "-c",
    "--config",
    "config",
    type=Assignment(),
    multiple=True,
    help="A setting of Spark's, which overrules ours; may be given several times.",
)
@log_level_option
@click.pass_context
def run_command(
    ctx: click.Context,
    app: Path,
    data: Path,
    broker: str,
    views: str | None,
    master: str,
    once: bool,
    start: str | None,
    reset: tuple[str, ...],
    spark_ui: int | None,
    config: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Run the pipelines of an application until SIGTERM or Ctrl-C.

    APP is the Python file that makes the App. Prints one line that starts with "ready" once all its queries
    run. A query that fails is started again, and the others go on. Started again, all of them go on where
    they were.
    """
    from headwater.cli.extras import set_up_pipelines

    set_up_pipelines(log_level)
    from headwater.pipeline.run import RunOptions, run_app

    options = RunOptions(
        app=app,
        data=data,
        broker=broker,
        views=views_url(views, data),
        master=master,
        once=once,
        start=start,
        reset=reset,
        ui_port=spark_ui,
        settings=dict(config),
    )
    ctx.exit(run_app(options))
