"""`headwater broker`: the durable log."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from headwater.cli.options import Address, Assignment
from headwater.cli.shared_options import (
    amqp_option,
    insecure_listen_option,
    kafka_option,
    log_format_option,
    log_level_option,
)


@click.command("broker")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default="./headwater-data",
    show_default=True,
    metavar="DIR",
    help="The directory of the log; it is made where it is missing.",
)
@kafka_option
@amqp_option
@click.option(
    "--advertise",
    type=Address(),
    help="The address that clients are told to connect to, where it is not the one of --kafka.",
)
@click.option(
    "--auth",
    type=click.Choice(["none", "sasl"]),
    default="none",
    show_default=True,
    help="Whether clients authenticate with a name and a password (sasl); see `headwater users`.",
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Speak TLS, with the certificate chain in this PEM file; SIGHUP reads it again.",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The certificate's key, where it is not in the same file.",
)
@click.option(
    "--tls-client-ca",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Let in only clients with a certificate that the authority in this PEM file has signed.",
)
@click.option(
    "--allow-plain-without-tls",
    is_flag=True,
    help="Let clients send passwords in clear text (SASL PLAIN) on a connection that is not encrypted.",
)
@insecure_listen_option
@click.option(
    "--durability",
    type=click.Choice(["sync", "os"]),
    default="sync",
    show_default=True,
    help="Whether an acknowledgement waits for the disk (sync) or for the operating system's cache (os).",
)
@click.option(
    "-c",
    "--config",
    "config",
    type=Assignment(),
    multiple=True,
    help="A broker setting, of those that `headwater settings` lists; may be given several times.",
)
@click.option(
    "--metrics",
    type=Address(),
    help="Serve GET /metrics (Prometheus) and GET /health here; without it, nowhere.",
)
@log_format_option
@log_level_option
@click.pass_context
def broker_command(
    ctx: click.Context,
    data: Path,
    kafka: tuple[str, int],
    amqp: tuple[str, int] | None,
    advertise: tuple[str, int] | None,
    auth: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    allow_plain_without_tls: bool,
    insecure_listen: bool,
    durability: str,
    config: tuple[tuple[str, str], ...],
    metrics: tuple[str, int] | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C.

    Prints one line that starts with "ready" once it accepts connections.
    """
    from headwater.cli.logging import set_up_logging
    from headwater.net.access import AccessOptions
    from headwater.net.serve import BrokerOptions, run_broker

    set_up_logging(style=log_format, level=log_level)
    if (data / "broker" / "format").exists() and not (data / "format").exists():
        raise click.ClickException(
            f"{data} is a directory of `headwater up`, whose broker has its log in {data / 'broker'}: "
            f"give --data {data / 'broker'}, or another directory for an empty broker"
        )
    options = BrokerOptions(
        data=data,
        kafka=kafka,
        amqp=amqp,
        amqp_asked=ctx.get_parameter_source("amqp") is not ParameterSource.DEFAULT,
        durability=durability,
        config=dict(config),
        advertise=advertise,
        metrics=metrics,
        access=AccessOptions(
            sasl=auth == "sasl",
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            plain_without_tls=allow_plain_without_tls,
            insecure_listen=insecure_listen,
        ),
    )
    ctx.exit(run_broker(options))
