"""Where messages may go: what is public, and that the address that was checked is the one connected to."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from clients.access.certificates import Authority
from headwater.serve import webhook
from headwater.serve.addresses import PrivateAddress, addresses_of, is_public
from headwater.serve.webhook import Answer, WebhookError, post, retry_after

from .receiving import Hook


async def sent(url: str, *, seconds: float = 5, **options: Any) -> Answer:
    try:
        return await post(url, b"{}", {}, seconds=seconds, **options)
    finally:
        await asyncio.sleep(0.02)  # for the connection to be closed before the loop is


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"],
)  # fmt: skip
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.1.2.3", "10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.1", "198.18.0.1",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::10.0.0.5", "64:ff9b:1::1", "2002:7f00:1::1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe", "::10.0.0.5", "100::1", "nonsense", "",
    ],
)  # fmt: skip
def test_others(address: str) -> None:
    assert not is_public(address)


def test_of_mixed_addresses_the_public_ones_are_used() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["10.0.0.5", "8.8.8.8", "8.8.8.8", "::1"]

    async def resolver_of_private(host: str, port: int) -> list[str]:
        return ["10.0.0.5", "::1"]

    found = addresses_of("hooks.example", 443, allow_private=False, resolver=resolver)
    assert asyncio.run(found) == ["8.8.8.8"]
    with pytest.raises(PrivateAddress, match=r"hooks\.example is at 10\.0\.0\.5, which is no public address"):
        asyncio.run(addresses_of("hooks.example", 443, allow_private=False, resolver=resolver_of_private))


def test_a_name_is_resolved_once_and_connected_to_at_that_address(hook: Callable[..., Hook]) -> None:
    """A second look at the name, as rebinding needs it, would lead nowhere here."""
    receiver = hook(lambda _: (204, {}))
    port = receiver.server.server_address[1]
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    url = f"http://hooks.invalid:{port}/x"
    answer = asyncio.run(sent(url, allow_private=True, resolver=resolver))
    assert (answer.status, asked) == (204, ["hooks.invalid"])
    assert receiver.requests[0][0]["Host"] == f"hooks.invalid:{port}"


def test_a_name_in_another_script_is_sent_to(hook: Callable[..., Hook]) -> None:
    received = hook(lambda _: (204, {}))
    port = int(received.url.rpartition(":")[2].partition("/")[0])

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    url = f"http://bücher.example:{port}/"
    answer = asyncio.run(sent(url, allow_private=True, resolver=here))
    assert answer.status == 204
    assert received.requests[0][0]["Host"] == f"xn--bcher-kva.example:{port}"


def test_a_name_that_turns_private_is_refused(hook: Callable[..., Hook]) -> None:
    receiver = hook(lambda _: (204, {}))

    async def rebound(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    url = f"http://hooks.invalid:{receiver.server.server_address[1]}/"
    with pytest.raises(WebhookError, match=r"hooks\.invalid is at 127\.0\.0\.1, which is no public address"):
        asyncio.run(sent(url, resolver=rebound))
    assert receiver.requests == []


@contextmanager
def answering(parts: list[bytes], pause: float, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the address of a server that says something whatever it is asked."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with (
                suppress(OSError),
                tls.wrap_socket(connection, server_side=True) if tls else connection as peer,
            ):
                peer.recv(8192)
                for part in parts:
                    peer.sendall(part)
                    if stop.wait(pause):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            stop.set()
            thread.join(10)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, b"220 mail.example\r\n", b"", b"HTTP/1.1 100 Continue\r\n\r\n"],
    ids=["endless head", "no HTTP", "nothing", "never an answer"],
)  # fmt: skip
def test_answers_that_are_none(answer: bytes) -> None:
    with answering([answer], 0.05) as url, pytest.raises(WebhookError):
        asyncio.run(sent(url, allow_private=True))


def test_an_answer_drop_by_drop_is_cut_off_in_time() -> None:
    drops = [bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000]
    with answering(drops, 0.02) as url, pytest.raises(WebhookError, match=r"no answer within 0\.5 s"):
        asyncio.run(asyncio.wait_for(sent(url, seconds=0.5, allow_private=True), 10))


@pytest.mark.real
def test_the_certificate_is_that_of_the_name_and_not_of_the_address(
    openssl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(openssl, tmp_path, "authority")
    certificate = authority.issue("server")  # for localhost and 127.0.0.1
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    trusting = ssl.create_default_context(cafile=str(authority.cert))
    monkeypatch.setattr(webhook, "_tls", lambda: trusting)
    answer = [b"HTTP/1.1 204 No Content\r\n\r\n"]

    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    def ask(host: str) -> Answer:
        with answering(answer, 0.05, context) as url:
            place = url.replace("http://127.0.0.1", f"https://{host}")
            return asyncio.run(sent(place, allow_private=True, resolver=resolver))

    assert ask("localhost").status == 204
    with pytest.raises(WebhookError, match="certificate verify failed: Hostname mismatch"):
        ask("hooks.invalid")


def test_retry_after_as_seconds_or_as_a_date() -> None:
    assert retry_after("7", 0.0) == 7.0
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111770.0) == 7.0
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 2e9) == 0.0
    assert [retry_after(text, 0.0) for text in ("", "-1", "soon", "1.5")] == [None] * 4
