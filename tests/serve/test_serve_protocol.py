"""Connections of HTTP that do not go as they should."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

import pytest

from headwater.serve import protocol
from headwater.views import Change, ViewStore

from .serve_helpers import Served


def connect(server: Served) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def everything(connection: socket.socket) -> bytes:
    found = b""
    while data := connection.recv(65536):
        found += data
    return found


def test_a_head_without_end_is_refused(server: Served) -> None:
    with connect(server) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(1000):
            connection.sendall(b"x" * 65536)
        pytest.fail("it was all taken in")
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        time.sleep(0.1)
        connection.sendall(b"x" * protocol.HEAD_BYTES)
        answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert "at most" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_a_head_that_does_not_come_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with connect(server) as connection:
        connection.sendall(said)
        assert everything(connection)[:13] == (b"HTTP/1.1 408 " if said else b"")
    with connect(server) as connection:  # also behind an answer
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(65536)
        connection.sendall(said or b"G")
        assert everything(connection).startswith(b"HTTP/1.1 408 ")


def test_an_answer_may_take_longer_than_a_head(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    token = server.get("/views/sales")["token"]
    began = time.monotonic()
    server.get("/views/sales/changes", since=token, wait="1")
    assert time.monotonic() - began >= 1


def test_the_head_of_a_stream_ends(server: Served) -> None:
    for path in ("/views/sales/changes", "/alerts/feed"):
        answer = server.client.head(path, headers={"Accept": "text/event-stream"}, timeout=5)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert server.client.get("/health", timeout=5).status_code == 200  # on the same connection


def test_keys_with_ends_of_lines(server: Served, store: ViewStore) -> None:
    store.commit("q", 1, "sales", [Change("a\nb\n", json.dumps({"country": "a\nb\n"}))])
    assert server.client.get("/views/sales/a%0Ab%0A").json()["key"] == "a\nb\n"
