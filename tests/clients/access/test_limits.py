"""What a stranger can do to a broker: little, and not for long."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from clients.brokers import Broker, eventually
from clients.raw import Raw, batch, produce, request
from headwater.testing.process import BrokerProcess, ProcessError
from headwater.testing.scram import ScramClient

from .certificates import Authority, Certificate
from .secured import PASSWORD, USER, Secured, add_user

pytestmark = pytest.mark.real

HASTE = {
    "headwater.authentication.timeout.ms": "700",
    "headwater.max.unauthenticated.connections": "8",
    "sasl.server.max.receive.size": "4096",
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """SASL without TLS, with little patience."""
    data = tmp_path_factory.mktemp("hasty") / "data"
    add_user(data)
    options = ("--auth=sasl", "--allow-plain-without-tls")
    with BrokerProcess(data, settings=HASTE, options=options) as broker:
        yield broker


@pytest.fixture(scope="module")
def hasty_tls(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """TLS, with little patience."""
    options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}")
    data = tmp_path_factory.mktemp("hasty-tls") / "data"
    with BrokerProcess(data, settings=HASTE, options=options) as broker:
        yield broker


_peers = itertools.count(2)


def connect(broker: BrokerProcess | Secured) -> socket.socket:
    """Connect from an address of its own: what the broker logs of one peer is limited."""
    source = f"127.0.1.{next(_peers)}"
    return socket.create_connection((broker.host, broker.port), timeout=10, source_address=(source, 0))


def log_in(broker: BrokerProcess) -> Raw:
    raw = Raw(Broker("headwater", broker.host, broker.port))
    assert raw.call("sasl_handshake", 1, mechanism="PLAIN").error_code == ErrorCode.none
    answer = raw.call("sasl_authenticate", 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
    assert answer.error_code == ErrorCode.none
    return raw


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def await_log(broker: BrokerProcess, text: str) -> None:
    eventually(broker.errors, lambda seen: text in seen, 5)


def test_a_silent_client_and_one_that_drips_are_sent_away(hasty: BrokerProcess) -> None:
    began = time.monotonic()
    with connect(hasty) as silent, connect(hasty) as dripping:
        dripping.settimeout(0.1)
        closed = False
        while not closed and time.monotonic() - began < 5:
            try:
                dripping.sendall(b"\0")
                closed = is_closed(dripping)
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
        assert closed
        assert is_closed(silent)
    assert time.monotonic() - began < 4
    await_log(hasty, "did not authenticate in time")


def test_a_client_that_authenticated_may_be_silent(hasty: BrokerProcess) -> None:
    with log_in(hasty) as raw:
        time.sleep(2.2)
        assert raw.call("metadata", 9, topics=[]).brokers


def test_a_large_request_is_for_those_who_authenticated(hasty: BrokerProcess) -> None:
    with connect(hasty) as stranger:
        stranger.sendall(struct.pack(">i", 4097))
        assert is_closed(stranger)
    await_log(hasty, "a request of 4097 bytes is larger than the limit of 4096")
    with log_in(hasty) as raw:
        raw.call(
            "create_topics", 7,
            topics=[{"name": "large", "num_partitions": 1, "replication_factor": 1}], timeout=10_000,
        )  # fmt: skip
        assert produce(raw, "large", batch(1, value=b"x" * 900_000)).error_code == ErrorCode.none


def test_strangers_are_few_and_do_not_keep_others_out_for_long(hasty: BrokerProcess) -> None:
    with log_in(hasty) as known:
        strangers = [connect(hasty) for _ in range(8)]
        with connect(hasty) as ninth:
            assert is_closed(ninth)
        assert known.call("metadata", 9, topics=[]).brokers
        assert all(is_closed(stranger) for stranger in strangers)
        for stranger in strangers:
            stranger.close()
        await_log(hasty, "headwater.max.unauthenticated.connections=8")
    log_in(hasty).close()


def test_what_is_sent_before_the_answer_is_served_after_it(hasty: BrokerProcess) -> None:
    with Raw(Broker("headwater", hasty.host, hasty.port)) as raw:
        assert raw.call("sasl_handshake", 1, mechanism="PLAIN").error_code == ErrorCode.none
        raw.start("sasl_authenticate", 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        raw.start("metadata", 9, topics=[])
        raw.receive()
        assert raw.finish("metadata", 9).brokers


def test_one_byte_at_a_time(hasty: BrokerProcess) -> None:
    client = ScramClient("sha512", USER, PASSWORD, "nonce")

    class Slow(Raw):
        def send(self, data: bytes) -> None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in data:
                self._socket.sendall(bytes([byte]))

    with Slow(Broker("headwater", hasty.host, hasty.port)) as raw:
        assert raw.call("sasl_handshake", 1, mechanism="SCRAM-SHA-512").error_code == ErrorCode.none
        challenge = raw.call("sasl_authenticate", 2, auth_bytes=client.first()).auth_bytes
        client.check(raw.call("sasl_authenticate", 2, auth_bytes=client.final(challenge)).auth_bytes)
        assert raw.call("metadata", 9, topics=[]).brokers


@pytest.mark.parametrize("which", ["hasty", "hasty_tls"])
def test_random_bytes_get_nowhere(request: pytest.FixtureRequest, which: str) -> None:
    broker: BrokerProcess = request.getfixturevalue(which)
    draw = random.Random(4)
    for _ in range(40):  # nothing here has to be in the log
        with connect(broker) as stranger:
            data = draw.randbytes(draw.randint(1, 300))
            if draw.random() < 0.5:
                data = struct.pack(">i", len(data)) + data
            try:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
            except ConnectionError:
                continue
            while not is_closed(stranger):
                pass
    assert "Traceback" not in broker.errors()
    if which == "hasty":
        log_in(broker).close()


def test_a_handshake_that_does_not_go_on_is_ended(hasty_tls: BrokerProcess) -> None:
    began = time.monotonic()
    with connect(hasty_tls) as silent, connect(hasty_tls) as halfway:
        halfway.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert is_closed(silent)
        assert is_closed(halfway)
    assert 0.5 < time.monotonic() - began < 4
    await_log(hasty_tls, "the TLS handshake took too long")


def test_handshakes_are_few_at_a_time(hasty_tls: BrokerProcess, authority: Authority) -> None:
    strangers = [connect(hasty_tls) for _ in range(8)]
    with connect(hasty_tls) as ninth:
        assert is_closed(ninth)
    await_log(hasty_tls, "headwater.max.unauthenticated.connections=8")
    assert all(is_closed(stranger) for stranger in strangers)
    for stranger in strangers:
        stranger.close()
    trust = ssl.create_default_context(cafile=str(authority.cert))
    with connect(hasty_tls) as plain, trust.wrap_socket(plain, server_hostname="localhost") as secure:
        assert secure.version() == "TLSv1.3"


def test_a_plain_client_on_a_tls_port(ssl_broker: Secured) -> None:
    with connect(ssl_broker) as plain:
        plain.sendall(request("metadata", 9, topics=[]))
        assert is_closed(plain)
    eventually(ssl_broker.errors, lambda seen: "the client does not speak TLS and this port does" in seen, 5)


def test_a_tls_client_on_a_plain_port(scram_broker: Secured, authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.cert))
    with (
        connect(scram_broker) as plain,
        pytest.raises(OSError, match=r"EOF|reset|closed"),
    ):
        trust.wrap_socket(plain, server_hostname="localhost")
    eventually(scram_broker.errors, lambda seen: "starts with a TLS handshake" in seen, 5)


def test_old_versions_of_tls_are_refused(ssl_broker: Secured, authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.cert))
    trust.minimum_version = trust.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        connect(ssl_broker) as plain,
        trust.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.version() == "TLSv1.2"
    hello = bytes.fromhex("16030100310100002d0301") + bytes(32) + bytes.fromhex("000006002f0035000a0100")
    with connect(ssl_broker) as old:
        old.sendall(hello)
        assert is_closed(old)
    eventually(ssl_broker.errors, lambda seen: "the TLS handshake failed: unsupported protocol" in seen, 5)


def test_sighup_brings_a_new_certificate(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(made: Certificate) -> None:
        cert.write_bytes(made.cert.read_bytes())
        key.write_bytes(made.key.read_bytes())

    def name(broker: BrokerProcess) -> str:
        trust = ssl.create_default_context(cafile=str(authority.cert))
        with connect(broker) as plain, trust.wrap_socket(plain, server_hostname="localhost") as secure:
            return "second" if "second" in str(secure.getpeercert()) else "first"

    install(first)
    with BrokerProcess(tmp_path / "data", options=(f"--tls-cert={cert}", f"--tls-key={key}")) as broker:
        assert name(broker) == "first"
        install(second)
        os.kill(broker.pid, signal.SIGHUP)
        eventually(lambda: name(broker), lambda seen: seen == "second", 5)
        cert.write_text("nothing")
        os.kill(broker.pid, signal.SIGHUP)
        await_log(broker, "kept the certificate that was there")
        assert name(broker) == "second"


def test_users_survive_a_crash(tmp_path: Path) -> None:
    data = tmp_path / "data"
    add_user(data)
    with BrokerProcess(data, options=("--auth=sasl", "--allow-plain-without-tls")) as broker:
        log_in(broker).close()
        broker.kill()
        add_user(data, "bob", "builder")
        broker.start()
        log_in(broker).close()
        with Raw(Broker("headwater", broker.host, broker.port)) as raw:
            raw.call("sasl_handshake", 1, mechanism="PLAIN")
            answer = raw.call("sasl_authenticate", 2, auth_bytes=b"\0bob\0builder")
            assert answer.error_code == ErrorCode.none


def test_beyond_this_machine_somebody_has_to_authenticate(tmp_path: Path) -> None:
    everywhere = ("--kafka=0.0.0.0:0",)
    with pytest.raises(ProcessError, match="can be reached from other machines and nobody has to"):
        BrokerProcess(tmp_path / "open", options=everywhere).start()
    for options in (("--insecure-listen",), ("--auth=sasl",)):
        broker = BrokerProcess(tmp_path / options[0], options=everywhere + options).start()
        broker.stop()
        assert "0.0.0.0" in broker.ready_line
