"""`headwater doctor`: what holds each query of an application back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from headwater.cli.shared_options import app_argument, data_option, existing_views, views_option


@click.command("doctor")
@app_argument
@data_option
@views_option
def doctor_command(app: Path, data: Path, views: str | None) -> None:
    """Say in one sentence per query how it is, and what holds it back.

    It reads what `headwater run` last said of itself, so it works while that runs and after.
    """
    from headwater.app import load
    from headwater.pipeline.doctor import diagnose

    application = load(app)
    functions = [*application.ordered(), *application.spark_warehouses()]
    if not functions:
        click.echo(f"{application.name} has no queries: it declares no stream, view, alert or sink.")
        return
    with existing_views(views, data) as store:
        statuses = store.statuses()
    now = time.time_ns() // 1_000_000
    for function in functions:
        name = f"{application.name}.{function.name}"
        status = statuses.get(name)
        click.echo(diagnose(name, json.loads(status) if status else None, now))
