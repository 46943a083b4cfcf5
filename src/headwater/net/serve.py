"""The broker as a process: open the data, listen, say so, and stop cleanly when told to."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from headwater.core.clock import SystemClock
from headwater.core.errors import CannotListen
from headwater.net.access import AccessOptions
from headwater.net.kafka.listener import KafkaListener
from headwater.net.metrics import MetricsServer
from headwater.net.node import Node
from headwater.net.tls import ServerTls

if TYPE_CHECKING:
    from headwater.net.amqp.listener import AmqpListener

logger = logging.getLogger(__name__)

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_PIECE = 4 * 1024 * 1024
_KEPT_BYTES = 48 * 1024 * 1024

_DRAIN_SECONDS = 5.0


@dataclass(frozen=True)
class BrokerOptions:
    """What a broker is started with."""

    data: Path
    kafka: tuple[str, int] = ("127.0.0.1", 9092)
    amqp: tuple[str, int] | None = None
    amqp_asked: bool = True
    """Whether the address was asked for by name: else there is no AMQP where passwords would go in clear text."""
    durability: str = "sync"
    config: dict[str, str] = field(default_factory=dict)
    advertise: tuple[str, int] | None = None
    metrics: tuple[str, int] | None = None
    access: AccessOptions = field(default_factory=AccessOptions)


def run_broker(options: BrokerOptions) -> int:
    """Run a broker until SIGTERM or SIGINT, and return the process's exit status."""
    options.access.check(options.kafka[0])
    if options.amqp is not None:
        options.access.check(options.amqp[0])
    _allow_open_files()
    _keep_memory()
    return uvloop.run(_serve(options))


async def _serve(options: BrokerOptions) -> int:
    started = time.monotonic()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    queues = _serves_queues(options)
    node = Node(
        options.data, SystemClock(), options.config, synced=options.durability == "sync", queues=queues
    )
    try:
        opening = time.monotonic()
        node.open()
        node.recovery_seconds = time.monotonic() - opening
        listener = KafkaListener(node, options.access)
        if options.access.sasl and not node.users.by_name:
            logger.warning("nobody can authenticate yet: stop the broker and run `headwater users add`")
        host, port = options.kafka
        try:
            port = await listener.start(host, port)
        except OSError as error:
            raise CannotListen(host, port, "Kafka clients", error, "another address with --kafka") from error
        node.host, node.port = options.advertise or (host, port)
        queue_listener = await _start_amqp(options, node) if queues else None
        _reload_on_hangup([listener.port.tls, queue_listener[0].port.tls if queue_listener else None], loop)
        monitoring = await _start_metrics(options, node, listener)
        node.start()
        # What start-up made stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Messages and requests are many and short-lived, and few of them refer to one another.
        gc.set_threshold(20_000, 20, 50)
        logger.info("opened %s in %.0f ms", options.data, 1000 * (time.monotonic() - started))
        places = f"kafka={host}:{port}" + (f" amqp={queue_listener[1]}" if queue_listener else "")
        sys.stdout.write(f"ready {places} data={options.data} durability={options.durability}\n")
        sys.stdout.flush()
        await stop.wait()
        logger.info("stopping")
        await listener.stop()
        if queue_listener is not None:
            await queue_listener[0].stop()
        if monitoring is not None:
            monitoring.stop()
    finally:
        await node.close()
    return 0


def _reload_on_hangup(certificates: list[ServerTls | None], loop: asyncio.AbstractEventLoop) -> None:
    used = [tls for tls in certificates if tls is not None]

    def reload() -> None:
        for tls in used:
            tls.reload()

    if used:
        loop.add_signal_handler(signal.SIGHUP, reload)


def _serves_queues(options: BrokerOptions) -> bool:
    access = options.access
    if options.amqp is None:
        return False
    if access.sasl and not (access.encrypted or access.plain_without_tls) and not options.amqp_asked:
        logger.warning("no AMQP: its passwords would go in clear text without --tls-cert")
        return False
    return True


async def _start_amqp(options: BrokerOptions, node: Node) -> tuple[AmqpListener, str]:
    from headwater.net.amqp.listener import AmqpListener

    assert options.amqp is not None, "somewhere to listen was given"
    listener = AmqpListener(node, options.access, version("headwater"))
    host, port = options.amqp
    try:
        port = await listener.start(host, port)
    except OSError as error:
        raise CannotListen(
            host, port, "AMQP clients", error, "another address with --amqp, or --amqp none"
        ) from error
    return listener, f"{host}:{port}"


def _allow_open_files() -> None:
    """Have as many connections and segments open as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keep_memory() -> None:
    """Have the C library keep some of the memory that answers to fetches were read into, for the next ones.

    It gives pieces of a megabyte back to the system at once, which then clears every page that is asked for again:
    half of what a fetch costs. Where this is not glibc, nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_PIECE)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


async def _start_metrics(options: BrokerOptions, node: Node, listener: KafkaListener) -> MetricsServer | None:
    if options.metrics is None:
        return None
    server = MetricsServer(node, listener)
    host, port = options.metrics
    try:
        port = await server.start(host, port)
    except OSError as error:
        raise CannotListen(host, port, "metrics", error, "another address with --metrics") from error
    logger.info("metrics on http://%s:%d/metrics", host, port)
    return server
