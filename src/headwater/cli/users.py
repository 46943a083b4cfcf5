"""`headwater users`: who may connect to a broker that runs with `--auth sasl`.

A broker that runs is asked over the network, as Kafka's `kafka-configs` asks it. The first user has nobody to
ask as, and is written into the data directory of a broker that is stopped, with `--data`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.client import broker_options, connect, result
from headwater.cli.output import json_option, note, print_rows

if TYPE_CHECKING:
    from headwater.broker.access.scram import ScramMechanism
    from headwater.broker.access.users import Upsertion

C = TypeVar("C", bound=Callable[..., Any])

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SALT_BYTES = 16


def _data_option(command: C) -> C:
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Work on the data directory of a broker that is stopped, instead of asking one that runs.",
    )(command)


@click.group("users")
def users_command() -> None:
    """Add, remove and list the users that may connect."""


@users_command.command("add")
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS),
    multiple=True,
    default=_MECHANISMS,
    show_default=True,
    help="What the user may authenticate with, besides PLAIN; may be given several times.",
)
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=8192,
    show_default=True,
    help="How many times the password is hashed.",
)
@_data_option
@broker_options
def add_command(
    client: dict[str, str], name: str, mechanisms: tuple[str, ...], iterations: int, data: Path | None
) -> None:
    """Add a user, or give it another password, which is asked for, or read from a pipe."""
    if not name:
        raise click.UsageError("a user needs a name")
    password = _read_password(name)
    import secrets

    from headwater.broker.access.scram import salt_password
    from headwater.broker.access.users import Upsertion

    upsertions = []
    for mechanism in _scram(mechanisms):
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = salt_password(mechanism, password, salt, iterations)
        upsertions.append(Upsertion(name, mechanism, iterations, salt, salted))
    if data is None:
        _add_running(client, upsertions, password)
    else:
        _add_stopped(data, upsertions)
    note(f"{name} may connect with {', '.join(mechanisms)}")


def _scram(names: tuple[str, ...]) -> list[ScramMechanism]:
    from headwater.broker.access.scram import ScramMechanism

    return [mechanism for mechanism in ScramMechanism if mechanism.sasl_name in names]


def _read_password(name: str) -> str:
    if sys.stdin.isatty():
        password: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password or "\0" in password:
        raise click.ClickException(f"{name} needs a password: type it, or pipe it in as one line")
    return password


def _add_stopped(data: Path, upsertions: list[Upsertion]) -> None:
    from headwater.net.users_at_rest import UsersAtRest

    with UsersAtRest(data) as stored:
        for upsertion in upsertions:
            records, refused = stored.users.alter((), [upsertion])
            for refusal in refused.values():
                if refusal is not None:
                    raise click.ClickException(refusal[1])
            stored.commit(records)


def _add_running(client: dict[str, str], upsertions: list[Upsertion], password: str) -> None:
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    with connect(client) as connection:
        admin = connection.admin()
        for each in upsertions:
            assert each.mechanism is not None, "chosen from the two there are"
            info = ScramCredentialInfo(ScramMechanism[f"SCRAM_{each.mechanism.name}"], each.iterations)
            change = UserScramCredentialUpsertion(each.user, info, password.encode(), each.salt)
            # One request may alter a user once.
            for future in admin.alter_user_scram_credentials([change]).values():
                result(future)


@users_command.command("remove")
@click.argument("name")
@_data_option
@broker_options
def remove_command(client: dict[str, str], name: str, data: Path | None) -> None:
    """Remove a user; connections that it has already stay open."""
    if data is not None:
        _existing(data)
        from headwater.net.users_at_rest import UsersAtRest

        with UsersAtRest(data) as stored:
            if name not in stored.users.by_name:
                raise click.ClickException(f"there is no user {name}")
            stored.commit(stored.users.remove(name))
        return
    from confluent_kafka.admin._scram import ScramMechanism, UserScramCredentialDeletion

    with connect(client) as connection:
        admin = connection.admin()
        if name not in (users := _running(admin)):
            raise click.ClickException(f"there is no user {name}")
        for mechanism in users[name]:
            scram = ScramMechanism[mechanism.replace("-", "_")]
            for future in admin.alter_user_scram_credentials(
                [UserScramCredentialDeletion(name, scram)]
            ).values():
                result(future)


@users_command.command("list")
@_data_option
@json_option
@broker_options
def list_command(client: dict[str, str], data: Path | None, as_json: bool) -> None:
    """List the users, and what each may authenticate with."""
    if data is not None:
        users = _stopped(_existing(data))
    else:
        with connect(client) as connection:
            users = _running(connection.admin())
    rows = [
        {
            "user": name,
            "mechanisms": sorted(users[name]),
            "iterations": max(users[name].values()),
        }
        for name in sorted(users)
    ]
    print_rows(rows, ["user", "mechanisms", "iterations"], as_json=as_json)


def _existing(data: Path) -> Path:
    if not data.is_dir():
        raise click.ClickException(f"{data} is no directory: give the --data of the broker")
    return data


def _stopped(data: Path) -> dict[str, dict[str, int]]:
    from headwater.net.users_at_rest import UsersAtRest

    with UsersAtRest(data) as stored:
        return {
            name: {mechanism.sasl_name: kept.iterations for mechanism, kept in credentials.items()}
            for name, credentials in stored.users.by_name.items()
        }


def _running(admin: Any) -> dict[str, dict[str, int]]:
    described = result(admin.describe_user_scram_credentials())
    return {
        name: {
            info.mechanism.name.replace("_", "-"): info.iterations for info in found.scram_credential_infos
        }
        for name, found in described.items()
    }
