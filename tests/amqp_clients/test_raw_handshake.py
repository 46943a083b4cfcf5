"""The way to an open connection, and clients that leave it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from .brokers import Broker
from .raw import METHOD, PROTOCOL_HEADER, Closed, Raw, method, publish, raw_frame

pytestmark = pytest.mark.real


@pytest.fixture
def raw(broker: Broker) -> Any:
    """A connection on which nothing was sent."""
    with Raw(broker) as made:
        yield made


def silence(raw: Raw) -> None:
    """Expect that the broker closes the connection without a word."""
    with pytest.raises(Closed):
        raw.receive()


def refused(broker: Broker, raw: Raw, text: str) -> None:
    """Expect that the connection ends; RabbitMQ tells why in its log alone, after three seconds."""
    if broker.is_headwater:
        closing = raw.expect(commands.Connection.Close)
        assert (closing.reply_code, closing.reply_text) == (530, f"NOT_ALLOWED - {text}")
        raw.send(method(commands.Connection.CloseOk()))
    silence(raw)


def test_the_broker_offers_what_clients_know(raw: Raw) -> None:
    said = raw.start()
    assert (said.version_major, said.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(said.mechanisms.split())
    assert said.locales == "en_US"
    assert said.server_properties["product"]
    tune = raw.expect(commands.Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2_047, 131_072, 60)


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x0a\x00", b"HTTP/1.1", b"GET / HT"], ids=repr)
def test_another_protocol_is_told_which_one_is_spoken(raw: Raw, header: bytes) -> None:
    raw.send(header)
    _channel, answer = raw.receive()
    assert (answer.major_version, answer.minor_version, answer.revision) == (0, 9, 1)
    silence(raw)


def test_amqplain(raw: Raw) -> None:
    response = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest".decode()
    raw.start(mechanism="AMQPLAIN", response=response)
    tune = raw.expect(commands.Connection.Tune)
    raw.send(method(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0)))
    raw.call(commands.Connection.Open(), commands.Connection.OpenOk)


def test_an_unknown_mechanism_is_refused(raw: Raw) -> None:
    raw.start(mechanism="TELEPATHY")
    silence(raw)


@pytest.mark.parametrize("frame_max", [1, 4_095])
def test_frames_may_not_be_too_small(broker: Broker, raw: Raw, frame_max: int) -> None:
    raw.tune(frame_max=frame_max)
    refused(broker, raw, f"negotiated frame_max = {frame_max} is lower than the minimum allowed value (4096)")


@pytest.mark.parametrize(
    ("field", "asked", "said", "most"),
    [
        ("frame_max", 131_073, "131073", 131_072),
        ("frame_max", 0, "0", 131_072),
        ("channel_max", 2_048, "2048", 2_047),
        ("channel_max", 0, "0 (no limit)", 2_047),
    ],
)
def test_a_client_may_not_ask_for_more_than_is_offered(
    broker: Broker, raw: Raw, field: str, asked: int, said: str, most: int
) -> None:
    """Zero means no limit at all, which is more than the broker allows."""
    raw.tune(**{field: asked})
    refused(broker, raw, f"negotiated {field} = {said} is higher than the maximum allowed value ({most})")


def test_a_connection_opens_no_more_channels_than_agreed(raw: Raw) -> None:
    raw.open(channel_max=2).channel(1).channel(2)
    raw.send(method(commands.Channel.Open(), 3))
    closing = raw.expect(commands.Connection.Close)
    assert (closing.reply_code, closing.reply_text) == (
        530,
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)",
    )


@pytest.mark.parametrize(
    "early",
    [
        pytest.param(method(commands.Connection.Open()), id="open"),
        pytest.param(method(commands.Connection.TuneOk(0, 0, 0)), id="tune-ok"),
        pytest.param(method(commands.Channel.Open(), 1), id="channel.open"),
        pytest.param(publish("q", b"m"), id="publish"),
        pytest.param(raw_frame(METHOD, 0, b"\xff\xff\xff\xff"), id="nonsense"),
        pytest.param(raw_frame(METHOD, 0, b"", size=2**31), id="two gigabytes"),
    ],
)
def test_frames_before_start_ok_end_the_connection(broker: Broker, raw: Raw, early: bytes) -> None:
    raw.send(PROTOCOL_HEADER)
    raw.expect(commands.Connection.Start)
    raw.send(early)
    silence(raw)
    with Raw(broker) as bystander:
        bystander.open().channel()


def test_who_says_nothing_is_put_out(raw: Raw) -> None:
    """RabbitMQ waits ten seconds for a handshake."""
    began = time.monotonic()
    silence(raw)
    assert 5 < time.monotonic() - began < 14


def test_who_stops_half_way_is_put_out(raw: Raw) -> None:
    raw.send(PROTOCOL_HEADER)
    raw.expect(commands.Connection.Start)
    silence(raw)


def test_who_sends_no_heartbeats_is_put_out(broker: Broker) -> None:
    with Raw(broker) as silent:
        silent.open(heartbeat=1)
        began = time.monotonic()
        silent.ended()
        assert 1 < time.monotonic() - began < 6


def test_an_idle_connection_hears_heartbeats(broker: Broker) -> None:
    with Raw(broker) as idle:
        idle.open(heartbeat=2)
        began = time.monotonic()
        channel, found = idle.receive()
        assert (channel, found.name) == (0, "Heartbeat")
        assert time.monotonic() - began < 2.5
