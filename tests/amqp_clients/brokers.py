"""The AMQP broker a test talks to, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from headwater.testing.process import BrokerProcess
from headwater.testing.rabbitmq import RealRabbitMQ

OTHER_VHOST = "other"
"""A second virtual host, beside "/"."""

Process = BrokerProcess | RealRabbitMQ


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    name: str
    host: str
    port: int
    process: Process

    @property
    def is_headwater(self) -> bool:
        return self.name == "headwater"

    @property
    def kafka(self) -> str:
        """Return where Headwater serves topics."""
        assert isinstance(self.process, BrokerProcess)
        return self.process.bootstrap

    def url(self, vhost: str = "/", user: str = "guest", password: str = "guest") -> str:
        """Return the address as URLs of AMQP are written."""
        return f"amqp://{user}:{password}@{self.host}:{self.port}/{quote(vhost, safe='')}"


def broker_of(process: Process) -> Broker:
    """Return the address of a process that runs or will run."""
    if isinstance(process, BrokerProcess):
        assert process.amqp_port is not None
        return Broker("headwater", process.host, process.amqp_port, process)
    return Broker("rabbitmq", process.host, process.port, process)


def new_process(name: str, data: Path) -> Process:
    """Make a broker, not yet started."""
    if name == "headwater":
        return BrokerProcess(data, amqp=True)
    return RealRabbitMQ(data, vhosts=("/", OTHER_VHOST))
