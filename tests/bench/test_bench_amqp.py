"""What PerfTest prints, and the client that only counts bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from socket import SocketIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, body, commands, frame, header

from bench.amqp import raw
from bench.amqp.connection import CHANNEL, Connection
from bench.amqp.mix import LARGEST, SMALLEST, Mix
from bench.amqp.perftest import Second, parse
from bench.amqp.raw import QUEUE, TAG, ack, check_first_round, consume, run_raw
from bench.clients import ClientError
from bench.tools import ToolError

PLAIN = """\
id: test-1, starting consumer #0
id: test-1, starting consumer #0, channel #0
id: test-1, starting producer #0
id: test-1, starting producer #0, channel #0
id: test-1, time 1.000 s, sent: 30412 msg/s, received: 20001 msg/s, min/median/75th/95th/99th consumer latency: \
2345/95012/149113/198211/207633 µs
id: test-1, time 2.000 s, sent: 40000 msg/s, received: 30000 msg/s, min/median/75th/95th/99th consumer latency: \
100/200/300/400/500 µs
id: test-1, time 3.000 s, sent: 40000 msg/s, received: 36000 msg/s, min/median/75th/95th/99th consumer latency: \
100/220/300/400/900 µs
id: test-1, time 4.001 s, sent: 12 msg/s, received: 7.5 msg/s, min/median/75th/95th/99th consumer latency: \
1/2/3/4/5 µs
test stopped (Reached time limit)
id: test-1, sending rate avg: 35000 msg/s
id: test-1, receiving rate avg: 28000 msg/s
id: test-1, consumer latency min/median/75th/95th/99th 100/220/300/400/900 µs
"""
CONFIRMED = """\
id: t, time 1.000 s, sent: 15012 msg/s, confirmed: 14890 msg/s, nacked: 0 msg/s, received: 14880 msg/s, \
min/median/75th/95th/99th consumer latency: 900/9000/9500/9900/20000 ?s, confirm latency: 1/2/3/4/5 ?s
test stopped (Reached time limit)
"""


def test_each_second_of_a_run_is_read() -> None:
    run = parse(PLAIN, 3)
    assert [each.time for each in run.seconds] == [1.0, 2.0, 3.0]
    assert run.seconds[1] == Second(2.0, 1.0, 40000.0, 30000.0, 200, 500)
    assert run.received == 86_001


def test_the_first_seconds_are_left_out() -> None:
    measured = parse(PLAIN, 3).after(1)
    assert measured.received_per_second == 33_000
    assert (measured.median_micros, measured.p99_micros) == (210, 700)
    with pytest.raises(ToolError, match="nothing after"):
        parse(PLAIN, 3).after(3)


def test_confirms_are_read_past_whatever_the_unit_looks_like() -> None:
    (second,) = parse(CONFIRMED, 1).seconds
    assert second == Second(1.0, 1.0, 15012.0, 14880.0, 9000, 20000)


def test_a_while_without_a_message_counts() -> None:
    stalled = "".join(line for line in PLAIN.splitlines(keepends=True) if "time 2.000" not in line)
    run = parse(stalled, 3)
    assert [each.length for each in run.seconds] == [1.0, 2.0]
    assert run.after(1).received_per_second == 36_000
    with pytest.raises(ToolError, match="ended 6 s before"):
        parse(PLAIN.replace("time 4.001", "time 99.000"), 9)


@pytest.mark.parametrize("why", ["Error in producer (channel is closed)", "Producer thread interrupted"])
def test_a_run_that_ended_early_is_refused(why: str) -> None:
    with pytest.raises(ToolError, match="time was up"):
        parse(PLAIN.replace("Reached time limit", why), 3)


@pytest.fixture(scope="module")
def mix() -> Mix:
    return Mix(QUEUE, TAG, messages=200)


def frames(data: bytes) -> Iterator[frame.FrameTypes]:
    while data:
        size, _, found = frame.unmarshal(data)
        data = data[size:]
        yield found


def test_what_is_published_is_what_amqp_says(mix: Mix) -> None:
    found = list(frames(mix.published))
    assert len(found) == 3 * mix.messages
    sizes = set()
    for publish, head, content in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert isinstance(publish, commands.Basic.Publish)
        assert isinstance(head, header.ContentHeader)
        assert isinstance(content, body.ContentBody)
        assert publish.routing_key == QUEUE
        assert head.body_size == len(content)
        sizes.add(head.body_size)
    assert SMALLEST <= min(sizes) < 30
    assert 3_000 < max(sizes) <= LARGEST
    assert len(sizes) > 100


def test_the_mix_is_the_same_every_time(mix: Mix) -> None:
    assert Mix(QUEUE, TAG, messages=200).published == mix.published


def test_messages_can_have_properties_of_their_own() -> None:
    found = frames(Mix(QUEUE, TAG, own_properties=True, messages=50).published)
    ids = {each.properties.message_id for each in found if isinstance(each, header.ContentHeader)}
    assert len(ids) == 50


@given(st.integers(0, 2_000))
def test_bytes_tell_how_many_messages_they_are(messages: int) -> None:
    mix = MIX
    for count, size in ((mix.sent, mix.publish_end), (mix.delivered, mix.delivery_end)):
        end = size(messages)
        assert count(end) == messages
        assert count(end + 1) == messages
        if messages:
            assert count(end - 1) == messages - 1


MIX = Mix(QUEUE, TAG, messages=30)


def test_an_acknowledgement_is_what_amqp_says() -> None:
    (found,) = frames(ack(70_000))
    assert isinstance(found, commands.Basic.Ack)
    assert (found.delivery_tag, found.multiple) == (70_000, True)


class Echo(threading.Thread):
    """A broker of one queue that knows nothing but what this client does: it delivers what is published."""

    def __init__(self, server: socket.socket, *, redelivered: bool) -> None:
        super().__init__()
        self.server = server
        self.redelivered = redelivered
        self.acknowledged = 0

    def run(self) -> None:
        with self._greeted() as publisher, self._greeted() as consumer:
            answer(consumer, commands.Queue.DeclareOk(QUEUE, 0, 0))
            answer(consumer, commands.Basic.ConsumeOk(TAG))
            counting = threading.Thread(target=self._count, args=(consumer,))
            counting.start()
            # The client may leave while something is on its way to it.
            with suppress(ConnectionError):
                self._deliver(publisher, consumer)
            counting.join()

    @contextmanager
    def _greeted(self) -> Iterator[socket.socket]:
        client, _ = self.server.accept()
        with client:
            assert client.recv(8) == header.ProtocolHeader().marshal()
            client.sendall(frame.marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0))
            answer(client, commands.Connection.Tune(2047, 131072, 60), channel=0)
            answer(client, commands.Connection.OpenOk(), channel=0, after=2)
            answer(client, commands.Channel.OpenOk())
            yield client

    def _deliver(self, publisher: socket.socket, consumer: socket.socket) -> None:
        with publisher.makefile("rb") as stream:
            number = 0
            while read_frame(stream):
                number += 1
                content = read_frame(stream) + read_frame(stream)
                deliver = commands.Basic.Deliver(TAG, number, self.redelivered, "", QUEUE)
                consumer.sendall(frame.marshal(deliver, CHANNEL) + content)

    def _count(self, consumer: socket.socket) -> None:
        with suppress(ConnectionError), consumer.makefile("rb") as stream:
            while data := read_frame(stream):
                (found,) = frames(data)
                assert isinstance(found, commands.Basic.Ack)
                self.acknowledged = found.delivery_tag


def answer(client: socket.socket, command: base.Frame, channel: int = CHANNEL, after: int = 1) -> None:
    """Answer once so many frames came, whatever is in them."""
    with client.makefile("rb", buffering=0) as stream:
        for _ in range(after):
            assert read_frame(stream)
    client.sendall(frame.marshal(command, channel))


def read_frame(stream: BufferedReader | SocketIO) -> bytes:
    start = stream.read(7) or b""
    if len(start) < 7:
        return b""
    return start + (stream.read((frame.frame_parts(start)[2] or 0) + 1) or b"")


@contextmanager
def echo(*, redelivered: bool = False) -> Iterator[tuple[int, Echo]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = Echo(server, redelivered=redelivered)
        broker.start()
        yield server.getsockname()[1], broker
        broker.join()


def test_the_client_accounts_for_every_message(mix: Mix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "ACK_EVERY", 50)
    monkeypatch.setattr(raw, "IN_FLIGHT", 300)
    with echo() as (port, broker):
        rate = run_raw(port, mix, warm=0.1, seconds=0.3)
    assert rate.messages > mix.messages
    assert rate.received_per_second > 0
    assert rate.messages - 100 < broker.acknowledged <= rate.messages


def test_a_delivery_that_is_not_what_was_published_is_told(mix: Mix) -> None:
    with (
        echo(redelivered=True) as (port, _),
        Connection(port) as publisher,
        Connection(port) as consumer,
    ):
        consume(consumer, mix)
        with pytest.raises(ClientError, match="message 1 came back otherwise"):
            check_first_round(publisher, consumer, mix)
