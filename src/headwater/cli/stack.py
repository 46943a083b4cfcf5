"""What `headwater up` starts: the roles, the order they start and stop in, and the log they share."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from headwater.cli.extras import needs, needs_spark
from headwater.cli.options import format_address
from headwater.cli.supervisor import Role, Supervisor
from headwater.core.errors import HeadwaterError

__all__ = ["StackOptions", "check", "run_stack"]

_COLOURS = {
    "broker": "blue",
    "capture": "cyan",
    "derived": "bright_cyan",
    "run": "magenta",
    "serve": "green",
    "up": "yellow",
}


@dataclass(frozen=True)
class StackOptions:
    """What to start, and where."""

    app: Path | None
    data: Path
    kafka: tuple[str, int]
    http: tuple[str, int]
    amqp: tuple[str, int] | None = None
    """Where the broker serves queues; nowhere without it."""
    views: str | None = None
    """The address of the views; by default a file in the data directory."""
    events: Sequence[str] = ()
    """The event stores that are served."""
    allow_private_webhooks: bool = False
    master: str = "local[*]"
    log_level: str = "info"
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Role] = ()
    """Roles that are started with those that need the broker."""
    seconds: float | None = None
    """How long to run once everything is ready; without it, until a signal."""

    @property
    def views_url(self) -> str:
        """The address of the views."""
        return self.views or f"sqlite:///{self.data / 'views.db'}"

    @property
    def broker(self) -> str:
        """The broker's address."""
        return f"kafka://{format_address(self.kafka)}"

    @property
    def page(self) -> str:
        """The address of the page."""
        return f"http://{format_address(self.http)}/"


def check(options: StackOptions) -> None:
    """Refuse what cannot work, before anything is started."""
    needs("starlette", extra="serve")
    if options.app is not None:
        _has_sources(options.app)
        if _has_queries(options.app):
            _needs_spark(options.app)
            from headwater.pipeline.session import java_version

            java_version()
    _refuse_strangers(options)
    for name, address in (("--kafka", options.kafka), ("--amqp", options.amqp), ("--http", options.http)):
        if address is not None:
            _refuse_if_taken(name, address)


def _refuse_strangers(options: StackOptions) -> None:
    """Refuse to listen where other machines can ask: each role would, but with advice that is for itself alone."""
    from headwater.net.access import is_loopback
    from headwater.serve.access import Access

    for option, address in (("--kafka", options.kafka), ("--amqp", options.amqp)):
        if address is not None and not is_loopback(address[0]):
            raise HeadwaterError(
                f"{option} {format_address(address)} can be reached from other machines, and the broker of"
                " `headwater up` lets everybody in: listen on 127.0.0.1, or run `headwater broker` by itself,"
                " which can ask for passwords"
            )
    tokens = options.data / "tokens"
    if not is_loopback(options.http[0]) and not Access(tokens, os.environ).required:
        raise HeadwaterError(
            f"--http {format_address(options.http)} can be reached from other machines and nobody has to"
            f" authenticate: make tokens with `headwater tokens add NAME --tokens {tokens}`, or listen on 127.0.0.1"
        )


def _refuse_if_taken(option: str, address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            stop = "stop what does, or " if error.errno == errno.EADDRINUSE else ""
            raise HeadwaterError(
                f"{format_address(address)} cannot be listened on ({error.strerror}): {stop}give"
                f" another address with {option}" + (", or --amqp none" if option == "--amqp" else "")
            ) from None


async def run_stack(options: StackOptions) -> int:
    """Run the roles until SIGINT, SIGTERM or SIGHUP; return the exit status."""
    supervisor = Supervisor(_log)
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            supervisor.kill()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    stopped = asyncio.create_task(stopping.wait())
    started = asyncio.create_task(_start(supervisor, options))
    try:
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result()
            await asyncio.wait({stopped}, timeout=options.seconds)
        _log("up", "stopping; Ctrl-C again does not wait")
    finally:
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)
        await supervisor.stop()
        stopped.cancel()
    _log("up", "everything is stopped")
    return 0


async def _start(supervisor: Supervisor, options: StackOptions) -> None:
    await supervisor.start(_broker(options))
    roles = [*options.others, _serve(options)]
    if options.app is not None:
        if _has_sources(options.app):
            roles.append(_capture(options))
        if _has_derived(options.app):
            roles.append(_derived(options))
        if _has_queries(options.app):
            roles.append(_run(options))
    await supervisor.start(*roles)
    places = f"Kafka at {format_address(options.kafka)}"
    if options.amqp is not None:
        places += f", AMQP at {format_address(options.amqp)}"
    sys.stdout.write(f"ready {options.page} ({places})\n")
    sys.stdout.flush()


def _broker(options: StackOptions) -> Role:
    command = [*_headwater("broker"), f"--data={options.data / 'broker'}"]
    command += [f"--kafka={format_address(options.kafka)}"]
    command += [f"--amqp={'none' if options.amqp is None else format_address(options.amqp)}"]
    command += [f"--config={name}={value}" for name, value in options.broker_settings.items()]
    return Role("broker", command, stop_seconds=3.0)


def _serve(options: StackOptions) -> Role:
    command = [*_headwater("serve"), *([str(options.app)] if options.app is not None else [])]
    command += [f"--broker={options.broker}", f"--http={format_address(options.http)}"]
    command += [f"--events={name}" for name in options.events]
    command += [f"--events-data={options.data / 'events'}", f"--tokens={options.data / 'tokens'}"]
    command += [f"--derived={options.data / 'derived'}"]
    command += ["--allow-private-webhooks"] if options.allow_private_webhooks else []
    return Role("serve", command, stop_seconds=3.0, environment={"HEADWATER_VIEWS": options.views_url})


def _has_sources(app: Path) -> bool:
    """Tell whether tables of an application come from databases; refuse an application that cannot run."""
    from headwater.app import load
    from headwater.capture.captures import captures_of_app

    return bool(captures_of_app(load(app)))


def _capture(options: StackOptions) -> Role:
    command = [*_headwater("capture"), "run", str(options.app), f"--broker={options.broker}"]
    return Role("capture", command, stop_seconds=5.0)


def _has_queries(app: Path) -> bool:
    """Tell whether an application has anything for Spark to run."""
    from headwater.app import load

    loaded = load(app)
    return bool(loaded.ordered() or loaded.spark_warehouses())


def _needs_spark(app: Path) -> None:
    from headwater.app import load

    loaded = load(app)
    needs_spark([] if loaded.ordered() else loaded.spark_warehouses())


def _has_derived(app: Path) -> bool:
    """Tell whether an application declares indexes, caches or warehouses that Spark does not write."""
    from headwater.app import load

    loaded = load(app)
    return len(loaded.derived()) > len(loaded.spark_warehouses())


def _derived(options: StackOptions) -> Role:
    command = [*_headwater("derived"), "run", str(options.app), f"--broker={options.broker}"]
    return Role("derived", [*command, f"--data={options.data}"], stop_seconds=5.0)


def _run(options: StackOptions) -> Role:
    command = [*_headwater("run"), str(options.app), f"--data={options.data}", f"--broker={options.broker}"]
    command += [f"--master={options.master}", f"--log-level={options.log_level}"]
    command += [f"--config={name}={value}" for name, value in options.spark_settings.items()]
    return Role("run", command, stop_seconds=6.0, environment={"HEADWATER_VIEWS": options.views_url})


def _headwater(command: str) -> list[str]:
    # Without the directory that we are in on the path: a file there may be called as a module of Python's is.
    return [sys.executable, "-P", "-m", "headwater.cli", command]


def _log(role: str, line: str) -> None:
    """Write a line of a role to stderr, in colours on a terminal."""
    click.echo(click.style(f"{role:<7} │ ", fg=_COLOURS.get(role, "white")) + line, err=True)
