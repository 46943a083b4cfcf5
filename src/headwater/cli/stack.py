"""What `headwater up` starts: the roles, the order they start and stop in, and the log they share."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from headwater.cli.extras import needs
from headwater.cli.options import format_address
from headwater.cli.supervisor import Role, Supervisor
from headwater.core.errors import HeadwaterError

__all__ = ["StackOptions", "check", "run_stack"]

_COLOURS = {"broker": "blue", "run": "magenta", "serve": "green", "up": "yellow"}


@dataclass(frozen=True)
class StackOptions:
    """What to start, and where."""

    app: Path | None
    data: Path
    kafka: tuple[str, int]
    http: tuple[str, int]
    amqp: tuple[str, int] | None = None
    """Where the broker serves queues; nowhere without it."""
    master: str = "local[*]"
    log_level: str = "info"
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Role] = ()
    """Roles that are started with those that need the broker."""
    seconds: float | None = None
    """How long to run once everything is ready; without it, until a signal."""

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
        needs("pyspark", extra="spark")
        from headwater.app import load
        from headwater.pipeline.session import java_version

        load(options.app)
        java_version()
    for name, address in (("--kafka", options.kafka), ("--amqp", options.amqp), ("--http", options.http)):
        if address is not None:
            _refuse_if_taken(name, address)


def _refuse_if_taken(option: str, address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise HeadwaterError(
                f"{format_address(address)} cannot be listened on ({error.strerror}): stop what does, or give"
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
    command += [f"--views=sqlite:///{options.data / 'views.db'}", f"--broker={options.broker}"]
    return Role("serve", [*command, f"--http={format_address(options.http)}"], stop_seconds=3.0)


def _run(options: StackOptions) -> Role:
    command = [*_headwater("run"), str(options.app), f"--data={options.data}", f"--broker={options.broker}"]
    command += [f"--master={options.master}", f"--log-level={options.log_level}"]
    command += [f"--config={name}={value}" for name, value in options.spark_settings.items()]
    return Role("run", command, stop_seconds=6.0)


def _headwater(command: str) -> list[str]:
    return [sys.executable, "-m", "headwater.cli", command]


def _log(role: str, line: str) -> None:
    """Write a line of a role to stderr, in colours on a terminal."""
    click.echo(click.style(f"{role:<6} │ ", fg=_COLOURS.get(role, "cyan")) + line, err=True)
