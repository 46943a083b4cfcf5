"""The course of a demo: start the processes, show their figures, stop them."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from headwater.cli.demo.children import Child, UsageMeter
from headwater.cli.demo.figures import Figures, FlowMeter, Meter, Percentiles, Usage
from headwater.cli.demo.screen import Screen, open_screen
from headwater.cli.options import format_address
from headwater.core.errors import HeadwaterError

PARTITIONS = 4
_READY_SECONDS = 10.0
_SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class DemoOptions:
    """What the user asked for."""

    rate: int
    seconds: float | None
    bootstrap: tuple[str, int] | None


class Gauges:
    """The figures of the demo, fed by its processes."""

    def __init__(self, broker: UsageMeter | None) -> None:
        self._started = time.monotonic()
        self._produced, self._consumed = FlowMeter(), FlowMeter()
        self._latencies = Percentiles()
        self._lag = 0
        self._broker = broker
        self._cpu = Meter()
        self._usage()

    def take_produced(self, line: str) -> None:
        """Take a report of the producer."""
        report = json.loads(line)
        self._produced.add(time.monotonic(), report["records"], report["bytes"], report["failed"])

    def take_consumed(self, line: str) -> None:
        """Take a report of the consumer."""
        report, now = json.loads(line), time.monotonic()
        self._consumed.add(now, report["records"], report["bytes"], report["failed"])
        self._latencies.add(now, report["latencies_ms"])
        self._lag = report["lag"]

    def figures(self) -> Figures:
        """Return the figures of this moment."""
        now = time.monotonic()
        p50, p99 = self._latencies.at(0.50, 0.99)
        produced, consumed = self._produced.flow(), self._consumed.flow()
        return Figures(now - self._started, produced, consumed, p50, p99, self._lag, self._usage())

    def _usage(self) -> Usage | None:
        read = self._broker.read() if self._broker is not None else None
        if read is None:
            return None
        cpu_seconds, resident = read
        self._cpu.add(time.monotonic(), cpu_seconds)
        return Usage(self._cpu.rate(), resident)

    def all_consumed(self) -> bool:
        """Tell whether the consumer has reported every record that the producer has."""
        return self._consumed.flow().records >= self._produced.flow().records


async def run_demo(options: DemoOptions, console: Console) -> None:
    """Run the demo until its time is up, or SIGINT, SIGTERM or SIGHUP."""
    course = asyncio.create_task(_course(options, console))
    signalled = False

    def end() -> None:
        nonlocal signalled
        if not signalled:  # a second Ctrl-C must not interrupt the stopping of the children
            signalled = True
            course.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end)
    try:
        await course
    except asyncio.CancelledError:
        if not signalled:
            raise


async def _course(options: DemoOptions, console: Console) -> None:
    name = f"demo-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        directory = Path(temporary)
        async with AsyncExitStack() as stack:
            broker = usage = None
            address = options.bootstrap
            if address is None:
                address = ("127.0.0.1", _free_port())
                broker = await stack.enter_async_context(_broker(address, directory))
                usage = UsageMeter(broker.pid)
            bootstrap = format_address(address)
            await stack.enter_async_context(_topic(bootstrap, name))
            arguments = [bootstrap, name, str(options.rate)]
            consumer = await stack.enter_async_context(
                _client("consumer", ["consume", *arguments], directory)
            )
            await _within(_READY_SECONDS, consumer.line(), "the consumer had no partitions")
            gauges = Gauges(usage)
            producer = await stack.enter_async_context(
                _client("producer", ["produce", *arguments], directory)
            )
            title = f"Headwater: orders through a broker at {bootstrap}"
            follows = [_follow(producer, gauges.take_produced), _follow(consumer, gauges.take_consumed)]
            if broker is not None:
                follows.append(_follow(broker, lambda line: None))
            await _watch(follows, gauges, open_screen(console, title), options.seconds)
            await _settle(gauges, producer, consumer)
            total = gauges.figures()
    sent, seen = total.produced, total.consumed
    console.print(
        f"Produced {sent.records:,} records and consumed {seen.records:,} ({seen.bytes / 1e6:,.0f} MB) "
        f"in {total.seconds:,.0f} s; everything is stopped.",
        soft_wrap=True,
        highlight=False,
    )


async def _follow(child: Child, take: Callable[[str], None]) -> NoReturn:
    while True:
        take(await child.line())


async def _show(gauges: Gauges, screen: Screen) -> NoReturn:
    while True:
        await asyncio.sleep(1.0)
        screen.show(gauges.figures())


async def _watch(
    follows: list[Coroutine[None, None, NoReturn]], gauges: Gauges, screen: Screen, seconds: float | None
) -> None:
    """Show the figures until the time is up or a signal cancels; raise when a child ends by itself."""
    tasks = [asyncio.create_task(work) for work in (*follows, _show(gauges, screen))]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        pass  # the signal that ends the demo; what follows is its orderly end
    finally:
        for task in tasks:
            task.cancel()
        endings = await asyncio.gather(*tasks, return_exceptions=True)
        screen.close()
    for ending in endings:
        if isinstance(ending, Exception):
            raise ending


async def _settle(gauges: Gauges, producer: Child, consumer: Child) -> None:
    """Stop the producer, and let the consumer reach the end."""
    await producer.stop()
    await producer.drain(gauges.take_produced)
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            while not gauges.all_consumed():
                gauges.take_consumed(await consumer.line())
    await consumer.stop()
    await consumer.drain(gauges.take_consumed)


@asynccontextmanager
async def _broker(address: tuple[str, int], directory: Path) -> AsyncIterator[Child]:
    """Run a broker, and wait until it is ready."""
    command = [sys.executable, "-m", "headwater.cli", "broker"]
    command += ["--data", str(directory / "data"), "--kafka", format_address(address)]
    # The group has one member: there is none to wait for.
    command += ["--config", "group.initial.rebalance.delay.ms=0"]
    broker = await Child.start("broker", command, directory)
    try:
        await _within(_READY_SECONDS, _ready(broker), "the broker was not ready")
        yield broker
    finally:
        await broker.stop()


async def _ready(broker: Child) -> None:
    while not (await broker.line()).startswith("ready"):
        pass


async def _within(seconds: float, waited: Awaitable[object], otherwise: str) -> None:
    try:
        await asyncio.wait_for(waited, seconds)
    except TimeoutError:
        raise HeadwaterError(f"{otherwise} within {seconds:.0f} s") from None


@asynccontextmanager
async def _client(name: str, arguments: list[str], directory: Path) -> AsyncIterator[Child]:
    command = [sys.executable, "-m", "headwater.cli.demo.clients", *arguments]
    child = await Child.start(name, command, directory)
    try:
        yield child
    finally:
        await child.stop()


@asynccontextmanager
async def _topic(bootstrap: str, name: str) -> AsyncIterator[None]:
    """Create the demo's topic, and delete it in the end: the broker may be somebody's own."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
    try:
        await _finished(admin.create_topics([topic], request_timeout=_READY_SECONDS)[name])
    except KafkaException as error:
        raise HeadwaterError(
            f"no broker at {bootstrap} made the demo's topic: {error.args[0].str()}"
        ) from None
    try:
        yield
    finally:
        with suppress(KafkaException):
            await _finished(admin.delete_topics([name], request_timeout=_SETTLE_SECONDS)[name])


async def _finished(future: Future[None]) -> None:
    # The client sets the future's result from its own thread and must not find it cancelled.
    await asyncio.shield(asyncio.wrap_future(future))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
