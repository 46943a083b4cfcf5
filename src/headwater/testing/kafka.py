"""A real Kafka broker, so that what we call Kafka's behaviour is Kafka's."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.testing.jars import KAFKA_4_3, KAFKA_SCRIPTS, java_command
from headwater.testing.process import ProcessError, free_port, terminate

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


class RealKafka:
    """Kafka 4.3.0 on one KRaft node, a context manager that is ready inside its block.

    Without `data`, its log is in a temporary directory that goes with the block. `properties` are added to
    `server.properties`, so `{"log.flush.interval.messages": "1"}` makes Kafka flush as Headwater does.

    >>> with RealKafka(properties={"num.partitions": "4"}) as kafka:   # doctest: +SKIP
    ...     Producer({"bootstrap.servers": kafka.bootstrap})
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        heap: str = "512m",
        properties: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        self.heap = heap
        self.host = "127.0.0.1"
        self.port = free_port()
        self.start_seconds = start_seconds
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.ready_after = 0.0
        self._temporary = data is None
        self._data = data
        self._extra = dict(properties or {})
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Return the address for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """Return the directory that holds the properties, the log of messages and the server's log."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="kafka-"))
        return self._data

    @property
    def log_path(self) -> Path:
        """Return the file that holds what the server prints."""
        return self.data / "server.log"

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        if self._process is None:
            raise ProcessError("Kafka is not running: start it first")
        return self._process.pid

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
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            **self._extra,
        }

    def start(self) -> Self:
        """Format the directory unless it was, start the server, and return once it answers."""
        if self._process is not None:
            raise ProcessError(f"Kafka already runs as process {self._process.pid}: stop it first")
        self.data.mkdir(parents=True, exist_ok=True)
        file = self.data / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        if not (self.data / "logs" / "meta.properties").exists():
            self._format(file)
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                java_command(KAFKA_4_3, "kafka.Kafka", str(file), heap=self.heap, options=KAFKA_SCRIPTS),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
            )
        self._await_ready(self._process, began + self.start_seconds)
        self.ready_after = time.monotonic() - began
        return self

    def stop(self) -> int:
        """Stop the server with SIGTERM, by force if it takes too long, and return its exit status."""
        if self._process is None:
            raise ProcessError("Kafka is not running: start it first")
        status = terminate(self._process, seconds=20)
        self._process = None
        return status

    def kill(self) -> int:
        """Kill the server with SIGKILL, as a crash would, and return its exit status."""
        if self._process is None:
            raise ProcessError("Kafka is not running: start it first")
        self._process.kill()
        status = self._process.wait()
        self._process = None
        return status

    def errors(self) -> str:
        """Return what the server has printed."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _format(self, file: Path) -> None:
        command = java_command(
            KAFKA_4_3, "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(file)
        )
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.data, timeout=60)
        if done.returncode:
            raise ProcessError(f"Kafka's directory could not be formatted:\n{done.stdout}{done.stderr}")

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._process = None
                raise ProcessError(f"Kafka ended with {process.returncode}:\n{self.errors()[-4000:]}")
            if answers(self.host, self.port):
                return
            time.sleep(0.05)
        self.kill()
        raise ProcessError(f"Kafka did not answer within {self.start_seconds} s:\n{self.errors()[-4000:]}")
