from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from pamqp import commands, frame
from pamqp.base import Frame

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import encode_table
from headwater.wire.amqp.constants import FRAME_HEADER_SIZE, PROTOCOL_HEADER
from headwater.wire.amqp.handshake import (
    AMQPLAIN,
    CAPABILITIES,
    PLAIN,
    Credentials,
    Handshake,
    Stage,
    Tuning,
    server_properties,
)
from headwater.wire.amqp.methods import decode_method, make

GUEST = b"\0guest\0guest"


def handshake(**options: Any) -> Handshake:
    return Handshake(server_properties("1.2.3"), **options)


def sent(data: bytes) -> Frame:
    assert struct.unpack_from(">BH", data) == (1, 0)
    return decode_method(data[FRAME_HEADER_SIZE:-1])


def start_ok(response: str | bytes = GUEST, mechanism: str = PLAIN, **properties: Any) -> Frame:
    return make(
        commands.Connection.StartOk,
        mechanism=mechanism,
        response=response,
        client_properties=properties,
        locale="en_US",
    )


def tune_ok(channel_max: int = 2047, frame_max: int = 131072, heartbeat: int = 60) -> Frame:
    return make(commands.Connection.TuneOk, channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)


def started(**options: Any) -> Handshake:
    shake = handshake(**options)
    shake.start(PROTOCOL_HEADER)
    return shake


def tuned(**options: Any) -> Handshake:
    shake = started(**options)
    shake.start_ok(start_ok())
    shake.tune()
    return shake


def test_a_connection_is_opened_in_seven_steps() -> None:
    shake = handshake()
    start = sent(shake.start(PROTOCOL_HEADER))
    assert isinstance(start, commands.Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == ("PLAIN AMQPLAIN", "en_US")
    assert shake.start_ok(start_ok(product="test")) == Credentials("guest", "guest", PLAIN)
    assert shake.client_properties == {"product": "test"}
    assert dict(sent(shake.tune())) == {"channel_max": 2047, "frame_max": 131072, "heartbeat": 60}
    assert shake.tune_ok(tune_ok(10, 4096, 5)) == Tuning(channel_max=10, frame_max=4096, heartbeat=5)
    assert shake.open(make(commands.Connection.Open, virtual_host="/")) == "/"
    assert isinstance(sent(shake.open_ok()), commands.Connection.OpenOk)
    assert shake.stage is Stage.RUNNING
    assert not shake.close


def test_pamqp_reads_connection_start() -> None:
    _, _, start = frame.unmarshal(handshake().start(PROTOCOL_HEADER))
    assert isinstance(start, commands.Connection.Start)
    assert start.server_properties == server_properties("1.2.3")


def test_clients_find_the_extensions_and_the_semantics_they_look_for() -> None:
    properties = server_properties("1.2.3")
    assert properties["capabilities"] == dict.fromkeys(CAPABILITIES, True)
    assert len(CAPABILITIES) == 9
    # As kombu decides whether basic.qos is per consumer, so that Celery widens its prefetch for countdowns.
    assert properties["product"] == "RabbitMQ"
    assert (3, 3) <= tuple(map(int, properties["version"].split("."))) < (4, 0)
    assert "Headwater 1.2.3" in properties["platform"]


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"])
def test_0_9_is_taken_for_0_9_1(header: bytes) -> None:
    assert isinstance(sent(handshake().start(header)), commands.Connection.Start)


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x01\x01\x08\x00",
        b"GET / HT",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_another_protocol_gets_our_header_and_is_closed(header: bytes) -> None:
    shake = handshake()
    assert shake.start(header) == PROTOCOL_HEADER
    assert shake.close


def test_capabilities_of_the_client_are_kept() -> None:
    shake = started()
    shake.start_ok(start_ok(capabilities={"connection.blocked": True, "basic.nack": False, "odd": 1}))
    assert shake.capabilities == {"connection.blocked"}
    for nothing in (None, "yes", [True]):
        shake = started()
        shake.start_ok(start_ok(capabilities=nothing))
        assert shake.capabilities == frozenset()


@pytest.mark.parametrize(
    ("response", "user", "password"),
    [
        (GUEST, "guest", "guest"),
        ("\0guest\0guest", "guest", "guest"),
        (b"someone\0guest\0guest", "guest", "guest"),
        ("\0zoë\0pässword".encode(), "zoë", "pässword"),
        (b"\0\0", "", ""),
    ],
)
def test_plain_is_a_user_and_a_password(response: str | bytes, user: str, password: str) -> None:
    assert started().start_ok(start_ok(response)) == Credentials(user, password, PLAIN)


def test_amqplain_is_a_table_without_its_length() -> None:
    response = encode_table({"LOGIN": "guest", "PASSWORD": "pässword"})[4:]
    assert started().start_ok(start_ok(response, AMQPLAIN)) == Credentials("guest", "pässword", AMQPLAIN)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        (PLAIN, b""),
        (PLAIN, b"guest"),
        (PLAIN, b"guest\0guest"),
        (PLAIN, b"\0guest\0guest\0"),
        (PLAIN, b"\0\xff\0guest"),
        (AMQPLAIN, b""),
        (AMQPLAIN, b"\x05LOGINS\xff"),
        (AMQPLAIN, encode_table({"LOGIN": "guest"})[4:]),
        (AMQPLAIN, encode_table({"LOGIN": "guest", "PASSWORD": 5})[4:]),
        (AMQPLAIN, encode_table({"LOGIN": b"\xff", "PASSWORD": "x"})[4:]),
    ],
)
def test_a_malformed_response_is_refused(mechanism: str, response: bytes) -> None:
    with pytest.raises(AmqpError) as refused:
        started().start_ok(start_ok(response, mechanism))
    assert refused.value.code is ReplyCode.SYNTAX_ERROR


@given(mechanism=st.sampled_from([PLAIN, AMQPLAIN]), response=st.binary(max_size=60))
def test_any_response_is_read_or_refused(mechanism: str, response: bytes) -> None:
    with contextlib.suppress(AmqpError):
        assert started().start_ok(start_ok(response, mechanism)).mechanism == mechanism


def test_only_mechanisms_that_were_offered_are_taken() -> None:
    for mechanism in ("EXTERNAL", "", "plain", AMQPLAIN):
        with pytest.raises(AmqpError, match=f"unknown authentication mechanism '{mechanism}'") as refused:
            started(mechanisms=(PLAIN,)).start_ok(start_ok(mechanism=mechanism))
        assert refused.value.code is ReplyCode.COMMAND_INVALID


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Credentials("me", "secret", PLAIN))
    assert "secret" not in f"{Credentials('me', 'secret', PLAIN)}"


def test_a_refused_login_is_told_to_clients_that_understand() -> None:
    shake = started()
    shake.start_ok(start_ok(capabilities={"authentication_failure_close": True}))
    close = sent(shake.refuse_login())
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 403
    assert close.reply_text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )
    assert shake.close


def test_a_refused_login_closes_the_socket_of_other_clients() -> None:
    shake = started()
    shake.start_ok(start_ok())
    assert shake.refuse_login() == b""
    assert shake.close


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (tune_ok(frame_max=4095), "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (tune_ok(frame_max=131073), "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (tune_ok(frame_max=0), "frame_max = 0 is higher than the maximum allowed value (131072)"),
        (tune_ok(channel_max=2048), "channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (
            tune_ok(channel_max=0),
            "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
    ],
)
def test_limits_out_of_bounds_are_refused_in_rabbitmqs_words(wanted: Frame, why: str) -> None:
    with pytest.raises(AmqpError) as refused:
        tuned().tune_ok(wanted)
    assert refused.value.reply_text == f"NOT_ALLOWED - negotiated {why}"
    assert (refused.value.class_id, refused.value.method_id) == (10, 30)


def test_a_server_without_limits_takes_any() -> None:
    shake = tuned(proposed=Tuning(0, 0, 0))
    assert shake.tune_ok(tune_ok(0, 0, 0)) == Tuning(0, 0, 0)


@given(
    channel_max=st.integers(0, 65535) | st.sampled_from([0, 1, 2047, 2048]),
    frame_max=st.integers(0, 2**32 - 1) | st.integers(4000, 132000),
    heartbeat=st.integers(0, 65535),
)
def test_a_client_gets_what_is_within_bounds_and_nothing_else(
    channel_max: int, frame_max: int, heartbeat: int
) -> None:
    wanted = tune_ok(channel_max, frame_max, heartbeat)
    if 1 <= channel_max <= 2047 and 4096 <= frame_max <= 131072:
        assert tuned().tune_ok(wanted) == (channel_max, frame_max, heartbeat)
    else:
        with pytest.raises(AmqpError, match="negotiated") as refused:
            tuned().tune_ok(wanted)
        assert refused.value.code is ReplyCode.NOT_ALLOWED


class Disorder(RuleBasedStateMachine):
    """A client that sends the methods of the handshake in any order gets on only by the right one."""

    ORDER = (Stage.STARTING, Stage.TUNING, Stage.OPENING, Stage.RUNNING)

    def __init__(self) -> None:
        super().__init__()
        self.shake = started()

    @rule(
        command=st.sampled_from(
            [
                start_ok(),
                tune_ok(),
                make(commands.Connection.Open),
                make(commands.Channel.Open),
                make(commands.Connection.SecureOk),
            ]
        ),
        at=st.sampled_from(["start_ok", "tune_ok", "open"]),
    )
    def send(self, command: Frame, at: str) -> None:
        before = self.shake.stage
        due = {
            Stage.STARTING: ("start_ok", commands.Connection.StartOk),
            Stage.TUNING: ("tune_ok", commands.Connection.TuneOk),
            Stage.OPENING: ("open", commands.Connection.Open),
        }.get(before)
        if due is not None and due[0] == at and isinstance(command, due[1]):
            getattr(self.shake, at)(command)
            if before is Stage.STARTING:
                self.shake.tune()
            if before is Stage.OPENING:
                self.shake.open_ok()
            assert self.shake.stage is self.ORDER[self.ORDER.index(before) + 1]
            return
        with pytest.raises(
            AmqpError, match=f"unexpected method in connection state {before.value}"
        ) as refused:
            getattr(self.shake, at)(command)
        assert refused.value.code is ReplyCode.CHANNEL_ERROR
        assert refused.value.class_id == command.index >> 16
        assert self.shake.stage is before

    @rule()
    def shell_out_of_step(self) -> None:
        with pytest.raises(RuntimeError, match="the handshake is"):
            self.shake.start(PROTOCOL_HEADER)

    @precondition(lambda self: self.shake.stage is Stage.RUNNING)
    @rule()
    def shell_after_the_end(self) -> None:
        for step in (self.shake.tune, self.shake.open_ok, self.shake.refuse_login):
            with pytest.raises(RuntimeError, match="running"):
                step()


TestDisorder = Disorder.TestCase
