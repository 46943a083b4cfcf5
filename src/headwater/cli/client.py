"""Where the broker is and how to get in: what every command that is a Kafka client shares."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 15.0
"""How long a request to the broker may take."""
_REACH_SECONDS = 5.0
_OUR_PARAMETERS = ("tls", "ca", "cert", "key", "mechanism")
"""Of the addresses that pipelines and servers take; librdkafka's properties have dots in their names."""


class BrokerUrl(click.ParamType[dict[str, str]]):
    """A `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]`, with client properties as its parameters.

    What the addresses of `headwater run` and `serve` say of TLS and passwords is understood here as well: they all
    may stand in one `HEADWATER_BROKER`.
    """

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """Return the properties that the URL stands for, or end with status 2."""
        if isinstance(value, dict):
            return value
        from urllib.parse import parse_qsl

        from headwater.cli.options import Address

        text = _without_password(str(value))
        scheme, _, rest = str(value).partition("://")
        place, _, query = rest.partition("?")
        login, at, servers = place.rstrip("/").rpartition("@")
        if scheme != "kafka" or not servers:
            self.fail(f"{text!r} is not kafka://HOST:PORT, like kafka://127.0.0.1:9092.", param, ctx)
        for server in servers.split(","):
            Address().convert(server, param, ctx)
        try:
            properties = dict(parse_qsl(query, strict_parsing=True, keep_blank_values=True)) if query else {}
        except ValueError:
            self.fail(
                f"{text!r} has a parameter that is not NAME=VALUE, like ?security.protocol=SSL.", param, ctx
            )
        ours = {name: properties.pop(name) for name in _OUR_PARAMETERS if name in properties}
        if not at and not ours:
            return {"bootstrap.servers": servers, **properties}
        return {**self._ours(f"{login}{at}{servers}", ours, param, ctx), **properties}

    def _ours(
        self, place: str, parameters: dict[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        from urllib.parse import urlencode

        # Imported late: the schemas behind it take longer to load than all of the command line.
        from headwater.core.errors import SettingError
        from headwater.core.urls import KafkaUrl

        try:
            return KafkaUrl.parse(f"kafka://{place}?{urlencode(parameters)}").properties()
        except SettingError as error:
            self.fail(f"{error}.", param, ctx)


def _without_password(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"…@{after}" if at and before else url


def broker_options(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the options that say where the broker is; it gets `client`, a dict of properties."""

    @click.option(
        "--broker",
        type=BrokerUrl(),
        default="kafka://127.0.0.1:9092",
        envvar="HEADWATER_BROKER",
        show_default=True,
        show_envvar=True,
        help="The broker, Headwater's or Kafka's; client properties may follow as ?NAME=VALUE&NAME=VALUE.",
    )
    @click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A file of client properties (librdkafka's names), NAME=VALUE a line: for TLS and passwords.",
    )
    @functools.wraps(command)
    def with_client(*args: P.args, **kwargs: P.kwargs) -> T:
        broker: dict[str, str] = kwargs.pop("broker")  # type: ignore[assignment]
        file: Path | None = kwargs.pop("command_config")  # type: ignore[assignment]
        kwargs["client"] = {**(_read_properties(file) if file else {}), **broker}
        return command(*args, **kwargs)

    return with_client


def _read_properties(path: Path) -> dict[str, str]:
    properties = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise click.ClickException(f"{path}, line {number}: {text!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties


class Connection:
    """The clients of one command, and the reason that librdkafka last gave for not reaching the broker."""

    def __init__(self, client: dict[str, str]) -> None:
        self.servers = client["bootstrap.servers"]
        self._properties = client
        self._last_error = ""
        self._admin: AdminClient | None = None

    def properties(self, **more: object) -> dict[str, Any]:
        """Return the properties for a librdkafka client, with more of them, underscores for dots."""
        return {
            "client.id": "headwater-cli",
            "log_level": 0,
            "error_cb": self._note,
            "socket.connection.setup.timeout.ms": 5000,
            **self._properties,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def admin(self) -> AdminClient:
        """Return an administrator's client of a broker that answers."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            # Kept here: what a client was asked for ends with the client.
            self._admin = AdminClient(self.properties())
            self._reach(self._admin)
        return self._admin

    def consumer(self, **more: object) -> Consumer:
        """Return a consumer."""
        from confluent_kafka import Consumer

        return Consumer(
            self.properties(
                **{
                    "group_id": "headwater-cli",
                    "enable_auto_commit": False,
                    "allow_auto_create_topics": False,
                }
                | more
            )
        )

    def _reach(self, admin: AdminClient) -> None:
        """Return once the broker answers: otherwise each request would only tell that it took too long."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _REACH_SECONDS
        while True:
            try:
                admin.list_topics(timeout=1)
                return
            except KafkaException as error:
                admin.poll(0)
                if time.monotonic() > deadline or self._last_error:
                    raise self.unreachable(error.args[0].str()) from None

    def unreachable(self, reason: str = "") -> click.ClickException:
        """Return the error that says why the broker cannot be reached."""
        return click.ClickException(f"no broker answers at {self.servers}: {self._last_error or reason}")

    def _note(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            # Of a connection that is closed without a word it tells no more.
            self._last_error = self._last_error or (
                "the connection is closed: it stopped, or wants another security.protocol (--command-config)"
            )
            return
        text = error.str()
        # What librdkafka adds about itself in parentheses or after a dash helps nobody.
        self._last_error = text.partition(" (after ")[0]


@contextmanager
def connect(client: dict[str, str]) -> Iterator[Connection]:
    """Give the clients of a command; what librdkafka raises becomes one line."""
    from confluent_kafka import KafkaException

    try:
        yield Connection(client)
    except KafkaException as error:
        raise click.ClickException(describe(error)) from error


def describe(error: BaseException) -> str:
    """Return what Kafka says is wrong, without librdkafka's wrapping."""
    from confluent_kafka import KafkaError

    reason = error.args[0] if error.args else error
    return reason.str() if isinstance(reason, KafkaError) else str(reason)


def result(future: Future[T]) -> T:
    """Wait for a request's result."""
    return future.result(SECONDS)
