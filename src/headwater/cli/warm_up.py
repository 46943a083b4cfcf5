"""`headwater warm-up`: have Spark start in half the time."""

from __future__ import annotations

import click


@click.command("warm-up")
def warm_up_command() -> None:
    """Have Spark start in half the time on this machine.

    It runs a query and keeps the classes that Spark has loaded for it, some 170 MB, in the user's cache. To be done
    again after an upgrade of Java or of Spark; deleting the file undoes it.
    """
    from headwater.cli.extras import needs
    from headwater.pipeline.class_archive import make_archive, spark_archive
    from headwater.pipeline.session import java_version

    needs("pyspark", extra="spark")
    java_version()
    if not spark_archive().is_file():
        click.echo("Running a query to see which classes Spark loads; this takes half a minute.", err=True)
    made = make_archive()
    megabytes = made.stat().st_size // 1_000_000
    click.echo(f"Spark's classes are kept in {made} ({megabytes} MB): pipelines start in half the time.")
