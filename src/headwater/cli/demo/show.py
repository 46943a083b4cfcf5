"""The demo's roles: those of `headwater up`, and the customers."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from headwater.cli.demo.catalogue import Catalogue
from headwater.cli.options import format_address
from headwater.cli.stack import StackOptions, check, run_stack
from headwater.cli.supervisor import Role

__all__ = ["APP", "DemoOptions", "run_demo"]

APP = Path(__file__).with_name("shop.py")
PAGE = ("127.0.0.1", 8080)


@dataclass(frozen=True)
class DemoOptions:
    """What the user asked for."""

    rate: float
    seconds: float | None
    http: tuple[str, int] | None
    data: Path
    master: str


async def run_demo(options: DemoOptions) -> int:
    """Run the demo until its time is up, or a signal."""
    kafka = ("127.0.0.1", _free_port(0))
    database = options.data.resolve() / "shop.db"
    options.data.mkdir(parents=True, exist_ok=True)
    Catalogue(database).make()
    os.environ["SHOP_DATABASE"] = str(database)
    program = "headwater.cli.demo.generator"
    command = [sys.executable, "-P", "-m", program, format_address(kafka), str(options.rate), str(database)]
    stack = StackOptions(
        app=APP,
        data=options.data,
        kafka=kafka,
        http=options.http or ("127.0.0.1", _free_port(PAGE[1])),
        master=options.master,
        # The customers come before the pipelines have made their topics.
        broker_settings={"num.partitions": "2"},
        # The compiler that makes code fastest also takes longest, and a shop this small does not pay it back.
        spark_settings={
            "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        },
        others=[Role("shop", command, stop_seconds=3.0)],
        seconds=options.seconds,
    )
    check(stack)
    return await run_stack(stack)


def _free_port(wanted: int) -> int:
    """Return a port that is free: the wanted one, or any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return _free_port(0)
        return int(probe.getsockname()[1])
