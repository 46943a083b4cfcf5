"""Where the broker of queues is and how to get in: what every command that is an AMQP client shares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.options import Assignment

if TYPE_CHECKING:
    from headwater.client.amqp import Connection
    from headwater.core.urls import AmqpUrl

C = TypeVar("C", bound=Callable[..., Any])

_MISSING = re.compile(r"no (queue|exchange) '(.*)' in vhost '(.*)'")
_INSTEAD = {
    "queues": "rabbitmqctl list_queues",
    "exchanges": "rabbitmqctl list_exchanges",
    "bindings": "rabbitmqctl list_bindings",
    "vhosts": "rabbitmqctl list_vhosts, add_vhost and delete_vhost",
}


class QueueBrokerUrl(click.ParamType["AmqpUrl"]):
    """An `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` for TLS."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AmqpUrl:
        """Return what the URL says, or end with status 2."""
        from headwater.core.errors import SettingError
        from headwater.core.urls import AmqpUrl

        if isinstance(value, AmqpUrl):
            return value
        try:
            return AmqpUrl.parse(str(value))
        except SettingError as error:
            self.fail(f"{error}.", param, ctx)


def queue_broker_option(command: C) -> C:
    """Give a command the option that says where the broker is; it gets `url`."""
    return click.option(
        "--broker",
        "url",
        type=QueueBrokerUrl(),
        default="amqp://127.0.0.1:5672",
        envvar="HEADWATER_AMQP",
        show_default=True,
        show_envvar=True,
        help="The broker, Headwater's or RabbitMQ: amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// for TLS, "
        "with ?ca=FILE&cert=FILE&key=FILE where it needs them.",
    )(command)


def arguments_option(command: C) -> C:
    """Give a command the option `-a NAME=VALUE`; it gets `arguments`, a tuple of pairs for `table`."""
    return click.option(
        "-a",
        "--argument",
        "arguments",
        type=Assignment(),
        multiple=True,
        help="An argument like x-max-length=1000; may be given several times. A value that is JSON is a number, "
        "a boolean or a list, anything else is text.",
    )(command)


def table(arguments: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return arguments as a field table.

    >>> table([("x-max-length", "10"), ("x-overflow", "reject-publish"), ("n", '"10"')])
    {'x-max-length': 10, 'x-overflow': 'reject-publish', 'n': '10'}
    """
    return {name: _value(text) for name, text in arguments}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def connect(url: AmqpUrl) -> Iterator[Connection]:
    """Give a connection; what the broker has no queue or exchange for becomes a sentence about it."""
    from headwater.client.amqp import Connection, NotFound, Refused
    from headwater.core.amqp import ReplyCode

    try:
        with Connection(url, "headwater-cli") as connection:
            yield connection
    except NotFound as error:
        if found := _MISSING.search(error.text):
            kind, name, vhost = found.groups()
            where = "" if vhost == "/" else f" in the virtual host {vhost}"
            raise click.ClickException(f"there is no {kind} named {name}{where}") from error
        raise
    except Refused as error:
        if error.code == ReplyCode.PRECONDITION_FAILED and error.text.startswith("inequivalent"):
            fix = "it is there already, and another: declare it as it is, or delete it first"
            raise click.ClickException(f"{error.text}: {fix}") from error
        raise


def items(connection: Connection, kind: str) -> list[dict[str, Any]]:
    """Return what Headwater lists, or say what to use with another broker."""
    from headwater.client.amqp import NotHeadwater
    from headwater.client.amqp.management import list_items

    try:
        return list_items(connection, kind)
    except NotHeadwater as error:
        raise not_headwater(error, kind) from error


def not_headwater(error: Exception, kind: str) -> click.ClickException:
    """Return the error that names the way out with RabbitMQ."""
    return click.ClickException(f"{error}: use {_INSTEAD[kind]} there")
