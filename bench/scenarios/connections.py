"""How much memory connections take that do nothing."""

from __future__ import annotations

import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.brokers import Broker
from bench.figures import HEADWATER, Better, Figure, Limit
from bench.process import resident_megabytes
from bench.scenarios.base import Scale, Scenario
from headwater.core.errors import HeadwaterError
from headwater.testing.process import BrokerProcess

CONNECTIONS = 10_000
SPARE_FILES = 200
SETTLE_SECONDS = 2.0
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
USER, PASSWORD = "bench", "bench"


class Connections(Scenario):
    """Resident memory with 10,000 idle connections: plain ones, and such as have authenticated over TLS."""

    name = "connections"
    sides = (HEADWATER,)
    figures = (
        Figure("connections", "resident, 10,000 idle", "MB", Better.LOWER, (Limit(1000, "MB"),)),
        Figure(
            "connections-secured",
            "resident, 10,000 idle over TLS and SASL",
            "MB",
            Better.LOWER,
            (Limit(1000, "MB"),),
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Open connections to the broker and look at it, then the same with a broker that asks who is there."""
        count = scale.of(CONNECTIONS)
        allow_open_files(count + SPARE_FILES)
        plain = hold(broker.bootstrap, broker.pid, count, greet)
        cert, key = make_certificate(scratch)
        data = scratch / "secured"
        add_user(data)
        options = (f"--tls-cert={cert}", f"--tls-key={key}", "--auth=sasl")
        with BrokerProcess(data, options=options) as secured:
            return {
                "connections": plain,
                "connections-secured": hold(secured.bootstrap, secured.pid, count, log_in),
            }


def hold(bootstrap: str, pid: int, count: int, begin: Callable[[socket.socket], socket.socket]) -> float:
    """Open that many connections, and return what the broker holds in memory with all of them open."""
    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            opened = socket.create_connection((host, int(port)), timeout=30)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stack.enter_context(begin(opened))
        time.sleep(SETTLE_SECONDS)
        return resident_megabytes(pid)


def greet(opened: socket.socket) -> socket.socket:
    """Do what every client does first."""
    call(opened, API_VERSIONS, 0, b"")
    return opened


def log_in(opened: socket.socket) -> socket.socket:
    """Do the handshakes of TLS and SASL."""
    secured = TRUSTING.wrap_socket(opened)
    mechanism = b"PLAIN"
    call(secured, SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
    token = f"\0{USER}\0{PASSWORD}".encode()
    answer = call(secured, SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    if struct.unpack_from(">h", answer, 4) != (0,):
        raise HeadwaterError("the broker did not let the benchmark's user in")
    return greet(secured)


def call(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """Send a request with the header of the first versions, and return the response."""
    request = struct.pack(">hhih", api, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise HeadwaterError("the broker closed a connection of the benchmark")
        data += chunk
    return data


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


TRUSTING = _trusting()


def allow_open_files(count: int) -> None:
    """Let this process have that many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise HeadwaterError(f"{count} open files are needed and {hard} allowed: see `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate that signs itself."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=60
    )
    return cert, key


def add_user(data: Path) -> None:
    """Add the benchmark's user to the data of a broker that is not running."""
    headwater = str(Path(sys.executable).with_name("headwater"))
    subprocess.run(
        [headwater, "users", "add", USER, f"--data={data}", "--iterations=4096"],
        input=f"{PASSWORD}\n", text=True, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
