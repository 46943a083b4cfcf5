"""The `headwater` command.

A command's module imports only click at its top, and what it runs inside the function: `headwater --help`
and shell completion load every module here, and have to feel instant.
"""

from __future__ import annotations

import io
import sys

import click

from headwater import __version__
from headwater.cli.alerts import alerts_command
from headwater.cli.bindings import bindings_command
from headwater.cli.broker import broker_command
from headwater.cli.capture import capture_command
from headwater.cli.capture_verify import verify_command
from headwater.cli.check import check_command
from headwater.cli.consume import consume_command
from headwater.cli.dead import dead_command
from headwater.cli.demo.command import demo_command
from headwater.cli.derived import cache_command, derived_command, index_command
from headwater.cli.doctor import doctor_command
from headwater.cli.errors import OneLineErrors
from headwater.cli.events import events_command
from headwater.cli.exchanges import exchanges_command
from headwater.cli.groups import groups_command
from headwater.cli.produce import produce_command
from headwater.cli.queues import queues_command
from headwater.cli.run import run_command
from headwater.cli.serve import serve_command
from headwater.cli.settings import settings_command
from headwater.cli.tokens import tokens_command
from headwater.cli.topics import topics_command
from headwater.cli.transactions import transactions_command
from headwater.cli.up import up_command
from headwater.cli.users import users_command
from headwater.cli.vhosts import vhosts_command
from headwater.cli.views import views_command
from headwater.cli.warm_up import warm_up_command

__all__ = ["main"]


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headwater")
def main() -> None:
    """Stream processing for Python teams: a durable log, and everything derived from it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Records hold characters that a terminal may lack; what reads JSON from a pipe takes it as UTF-8.
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8")


main.add_command(alerts_command)
main.add_command(bindings_command)
main.add_command(broker_command)
capture_command.add_command(verify_command)
main.add_command(cache_command)
main.add_command(capture_command)
main.add_command(check_command)
main.add_command(consume_command)
main.add_command(dead_command)
main.add_command(demo_command)
main.add_command(derived_command)
main.add_command(doctor_command)
main.add_command(events_command)
main.add_command(exchanges_command)
main.add_command(groups_command)
main.add_command(index_command)
main.add_command(produce_command)
main.add_command(queues_command)
main.add_command(run_command)
main.add_command(serve_command)
main.add_command(settings_command)
main.add_command(tokens_command)
main.add_command(topics_command)
main.add_command(transactions_command)
main.add_command(up_command)
main.add_command(users_command)
main.add_command(vhosts_command)
main.add_command(views_command)
main.add_command(warm_up_command)
