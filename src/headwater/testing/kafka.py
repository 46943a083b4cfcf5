"""A real Kafka broker, so that what we call Kafka's behaviour is Kafka's."""

from __future__ import annotations

import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from headwater.testing.jars import BRIEF, KAFKA_4_3, java_command
from headwater.testing.process import ProcessError, free_port
from headwater.testing.server import RealServer

__all__ = ["RealKafka", "answers"]


def answers(host: str, port: int, seconds: float = 1) -> bool:
    """Tell whether a broker answers a Metadata request (version 1, no topics) with itself in it."""
    request = struct.pack(">hhih", 3, 1, 0, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                response = stream.read(12)
    except OSError:
        return False
    if len(response) < 12:
        return False
    _size, _correlation, brokers = struct.unpack(">iii", response)
    return bool(brokers)


class RealKafka(RealServer):
    """Kafka 4.3.0 on one KRaft node, a context manager that is ready inside its block.

    Without `data`, its log is in a temporary directory that goes with the block. `properties` are added to
    `server.properties`, so `{"log.flush.interval.messages": "1"}` makes Kafka flush as Headwater does. Its JVM starts
    quickly and never gets fast; give `java=KAFKA_SCRIPTS` for one that does, as a benchmark has to.

    >>> with RealKafka(properties={"num.partitions": "4"}) as kafka:   # doctest: +SKIP
    ...     Producer({"bootstrap.servers": kafka.bootstrap})
    """

    name = "Kafka"

    def __init__(
        self,
        data: Path | None = None,
        *,
        heap: str = "512m",
        java: tuple[str, ...] = BRIEF,
        properties: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        super().__init__(data, start_seconds=start_seconds)
        self.heap = heap
        self.java = java
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._extra = dict(properties or {})
        self._controller_port = free_port()
        while self._controller_port == self.port:  # what was free a moment ago is free again
            self._controller_port = free_port()

    @property
    def bootstrap(self) -> str:
        """Return the address for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Return the server's properties, with the ones given last."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            **self._extra,
        }

    @property
    def _properties_path(self) -> Path:
        return self.data / "server.properties"

    def prepare(self) -> None:
        """Write the properties, and format the directory unless it was."""
        lines = "".join(f"{name}={value}\n" for name, value in self.properties.items())
        self._properties_path.write_text(lines)
        if not (self.data / "logs" / "meta.properties").exists():
            self._format(self._properties_path)

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start Kafka."""
        file = str(self._properties_path)
        command = java_command(KAFKA_4_3, "kafka.Kafka", file, heap=self.heap, options=self.java)
        return self.spawn(command, log)

    def answers(self) -> bool:
        """Tell whether it answers a Metadata request with itself in it."""
        return answers(self.host, self.port)

    def _format(self, file: Path) -> None:
        command = java_command(
            KAFKA_4_3, "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(file)
        )
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.data, timeout=60)
        if done.returncode:
            raise ProcessError(f"Kafka's directory could not be formatted:\n{done.stdout}{done.stderr}")
