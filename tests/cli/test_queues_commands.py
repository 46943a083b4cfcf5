"""`headwater queues`, `exchanges`, `bindings` and `vhosts`, as far as no real broker is needed."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result
from pamqp import commands

from client.amqp.fake import FakeBroker, Peer
from headwater.cli import main
from headwater.cli.queue_transfer import Rate
from headwater.testing.process import free_port


def _run(script: Callable[[Peer], object], *words: str, given: str = "") -> Result:
    with FakeBroker(script) as broker:
        return CliRunner().invoke(main, [*words, "--broker", broker.url.text()], input=given)


@pytest.mark.parametrize(
    "words",
    [
        ("queues", "list"),
        ("queues", "declare", "a"),
        ("queues", "purge", "a", "--yes"),
        ("queues", "move", "a", "b"),
        ("exchanges", "list"),
        ("bindings", "add", "a", "b"),
        ("vhosts", "list"),
    ],
)
def test_nobody_listens(words: tuple[str, ...]) -> None:
    port = free_port()
    done = CliRunner().invoke(main, [*words, "--broker", f"amqp://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: no broker answers at 127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("queues", "list", "--broker", "kafka://a:1"), "is not a queue broker's address"),
        (("queues", "list", "--broker", "amqp://a:b@"), "is not HOST:PORT"),
        (("queues", "move", "a", "a"), "are the same queue"),
        (("queues", "redrive", "a", "--to", "a"), "names the dead-letter queue itself"),
        (("queues", "redrive", "a", "--rate", "0"), "is not a rate"),
        (("queues", "declare", "a", "-a", "ttl"), "NAME=VALUE"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], reason: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50.0), ("50", 50.0), ("0.5/s", 0.5)])
def test_rates(text: str, rate: float) -> None:
    assert Rate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "0", "-1/s", "1/m", "fast"])
def test_not_a_rate(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Rate().convert(text, None, None)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("queues", "list"), "rabbitmqctl list_queues"),
        (("exchanges", "list"), "rabbitmqctl list_exchanges"),
        (("bindings", "list"), "rabbitmqctl list_bindings"),
        (("vhosts", "add", "shop"), "rabbitmqctl list_vhosts, add_vhost and delete_vhost"),
    ],
)
def test_lists_need_headwater(words: tuple[str, ...], instead: str) -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.goodbye()

    done = _run(script, *words)
    assert done.exit_code == 1
    assert done.output.endswith(
        f" is Fake 1.0, which does not answer Headwater's requests: use {instead} there\n"
    )


def test_a_queue_that_is_not_there() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.expect(commands.Queue.Declare)
        text = "NOT_FOUND - no queue 'orders' in vhost 'shop'"
        peer.send(commands.Channel.Close, reply_code=404, reply_text=text)
        peer.expect(commands.Channel.CloseOk)
        peer.goodbye()

    done = _run(script, "queues", "get", "orders")
    assert (done.exit_code, done.output) == (
        1,
        "Error: there is no queue named orders in the virtual host shop\n",
    )


def test_a_bad_line_ends_with_its_number_after_the_others_are_confirmed() -> None:
    def script(peer: Peer) -> None:
        peer.handshake()
        peer.open_channel()
        peer.expect(commands.Queue.Declare)
        peer.send(commands.Queue.DeclareOk, queue="q")
        peer.confirm_select()
        method, _, body = peer.message()
        assert (method.routing_key, method.mandatory, body) == ("q", True, b"one")
        peer.send(commands.Basic.Ack, delivery_tag=1)
        peer.goodbye()

    done = _run(script, "queues", "publish", "q", "--json", given='{"body": "one"}\n{"body": \n')
    assert done.exit_code == 1
    assert done.output.startswith("Error: line 2: not JSON: ")
    assert done.output.endswith("; the 1 messages before it were published\n")
