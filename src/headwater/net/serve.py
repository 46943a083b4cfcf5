"""The broker as a process: open the data, listen, say so, and stop cleanly when told to."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from headwater.core.clock import SystemClock
from headwater.core.errors import HeadwaterError
from headwater.net.kafka.listener import KafkaListener
from headwater.net.node import Node

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = 5.0


@dataclass(frozen=True)
class BrokerOptions:
    """What a broker is started with."""

    data: Path
    kafka: tuple[str, int] = ("127.0.0.1", 9092)
    durability: str = "sync"
    config: dict[str, str] = field(default_factory=dict)
    advertise: tuple[str, int] | None = None


def run_broker(options: BrokerOptions) -> int:
    """Run a broker until SIGTERM or SIGINT, and return the process's exit status."""
    return uvloop.run(_serve(options))


async def _serve(options: BrokerOptions) -> int:
    started = time.monotonic()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = Node(options.data, SystemClock(), options.config, synced=options.durability == "sync")
    try:
        node.open()
        listener = KafkaListener(node)
        host, port = options.kafka
        try:
            port = await listener.start(host, port)
        except OSError as error:
            raise HeadwaterError(
                f"cannot listen on {host}:{port} for Kafka clients: {error.strerror}"
            ) from error
        node.host, node.port = options.advertise or (host, port)
        node.start()
        # What start-up made stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        logger.info("opened %s in %.0f ms", options.data, 1000 * (time.monotonic() - started))
        sys.stdout.write(f"ready kafka={host}:{port} data={options.data} durability={options.durability}\n")
        sys.stdout.flush()
        await stop.wait()
        logger.info("stopping")
        await listener.stop()
    finally:
        await node.close()
    return 0
