"""Declaring, binding and deleting, with RabbitMQ's refusals."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.broker.queues.definitions import Binding, ExchangeKind
from headwater.broker.queues.names import server_name
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Long

from .declared import ME, OTHER, Declared, refused, state_of

DEFAULT_REFUSED = "operation not permitted on the default exchange"
LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on another"
    " connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def declared() -> Declared:
    return Declared()


# Queues


def test_a_queue_is_declared_once_and_may_be_declared_again(declared: Declared) -> None:
    declared.queue("q", durable=True, arguments={"x-max-length": 5, "x-other": 1})
    before = len(declared.log)
    declared.queue("q", durable=True, arguments={"x-max-length": 5, "x-other": 2, "x-queue-type": "classic"})
    assert len(declared.log) == before
    queue = declared.definitions.queue_for("/", "q", OTHER)
    assert queue.settings.max_length == 5
    assert (queue.arguments, queue.durable, queue.owner) == ({"x-max-length": 5, "x-other": 1}, True, None)


@pytest.mark.parametrize(
    ("again", "text"),
    [
        ({"durable": True}, "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        (
            {"auto_delete": True},
            "'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"arguments": {}},
            "'x-max-length' for queue 'q' in vhost '/': "
            "received none but current is the value '5' of type 'signedint'",
        ),
        (
            {"arguments": {"x-max-length": 6}},
            "'x-max-length' for queue 'q' in vhost '/': received '6' but current is '5'",
        ),
        (
            {"arguments": {"x-max-length": "5"}},
            "'x-max-length' for queue 'q' in vhost '/': received '5' but current is '5'",
        ),
        (
            {"arguments": {"x-max-length": 5.0}},
            "'x-max-length' for queue 'q' in vhost '/': received '5.0' but current is '5'",
        ),
        (
            {"arguments": {"x-max-length": 5, "x-overflow": "drop-head"}},
            "'x-overflow' for queue 'q' in vhost '/': "
            "received the value 'drop-head' of type 'longstr' but current is none",
        ),
        (
            {"arguments": {"x-max-length": 5, "x-message-ttl": Long(5)}},
            "'x-message-ttl' for queue 'q' in vhost '/': "
            "received the value '5' of type 'long' but current is none",
        ),
        (
            {"arguments": {"x-max-length": 5, "x-queue-type": "quorum"}},
            "'x-queue-type' for queue 'q' in vhost '/': "
            "received the value 'quorum' of type 'longstr' but current is none",
        ),
        (
            {"arguments": {"x-max-length": 5, "x-headwater-topic": "t"}},
            "'x-headwater-topic' for queue 'q' in vhost '/': "
            "received the value 't' of type 'longstr' but current is none",
        ),
    ],
)
def test_a_second_declaration_that_differs_is_refused(
    declared: Declared, again: dict[str, Any], text: str
) -> None:
    declared.queue("q", arguments={"x-max-length": 5})
    again = {"arguments": {"x-max-length": 5}, **again}
    refused(ReplyCode.PRECONDITION_FAILED, f"inequivalent arg {text}", lambda: declared.queue("q", **again))


def test_a_second_declaration_may_write_its_numbers_in_another_field(declared: Declared) -> None:
    declared.queue("q", arguments={"x-max-length": 5})
    before = len(declared.log)
    declared.queue("q", arguments={"x-max-length": Long(5)})
    assert len(declared.log) == before


def test_a_passive_declaration_only_looks(declared: Declared) -> None:
    text = "no queue 'q' in vhost '/'"
    refused(ReplyCode.NOT_FOUND, text, lambda: declared.queue("q", passive=True))
    declared.queue("q", durable=True, arguments={"x-max-length": 5})
    before = len(declared.log)
    declared.queue("q", passive=True)
    declared.queue("q\r\n", passive=True)
    assert len(declared.log) == before


def test_an_exclusive_queue_is_its_connections_alone(declared: Declared) -> None:
    declared.queue("q", exclusive=True, durable=True)
    declared.bind("amq.direct", "q", "k", owner=ME)
    declared.queue("q", exclusive=True, durable=True)
    declared.queue("q", passive=True)
    other = declared.definitions
    for attempt in (
        lambda: declared.queue("q", exclusive=True, owner=OTHER),
        lambda: declared.queue("q", passive=True, owner=OTHER),
        lambda: declared.queue("q"),
        lambda: other.delete_queue("/", "q", owner=OTHER),
        lambda: other.queue_for("/", "q", OTHER),
        lambda: declared.bind("amq.fanout", "q", owner=OTHER),
        lambda: declared.unbind("amq.direct", "q", "k", owner=OTHER),
    ):
        refused(ReplyCode.RESOURCE_LOCKED, LOCKED, attempt)
    assert not other.queue_for("/", "q", ME).durable
    assert [queue.name for queue in other.owned_by("/", ME)] == ["q"]
    assert other.owned_by("/", OTHER) == []
    declared.apply(other.delete_queue("/", "q"))
    assert other.owned_by("/", ME) == []


def test_a_queue_that_is_everyones_cannot_become_exclusive(declared: Declared) -> None:
    declared.queue("q")
    refused(ReplyCode.RESOURCE_LOCKED, LOCKED, lambda: declared.queue("q", exclusive=True))


def test_only_the_server_gives_names_that_start_with_amq(declared: Declared) -> None:
    name = server_name(bytes(range(16)))
    assert name == "amq.gen-AAECAwQFBgcICQoLDA0ODw"
    declared.queue(name, server_named=True)
    declared.queue(name, passive=True)
    refused(
        ReplyCode.ACCESS_REFUSED,
        f"queue name '{name}' contains reserved prefix 'amq.*'",
        lambda: declared.queue(name),
    )
    refused(
        ReplyCode.ACCESS_REFUSED,
        "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        lambda: declared.exchange("amq.mine"),
    )
    refused(
        ReplyCode.PRECONDITION_FAILED,
        "Cannot declare a server-named queue for type rabbit_quorum_queue",
        lambda: declared.queue(name, server_named=True, arguments={"x-queue-type": "quorum"}),
    )


def test_a_queue_that_is_deleted_and_declared_again_is_another_one(declared: Declared) -> None:
    declared.queue("q")
    first = declared.definitions.queue_for("/", "q", ME)
    declared.apply(declared.definitions.delete_queue("/", "q", owner=ME))
    declared.queue("q")
    assert declared.definitions.queue_for("/", "q", ME).id != first.id


def test_what_is_not_there_needs_no_deleting(declared: Declared) -> None:
    assert declared.definitions.delete_queue("/", "q", owner=ME) == []
    assert declared.definitions.delete_exchange("/", "x") == []


# Exchanges


def test_an_exchange_is_declared_once_and_may_be_declared_again(declared: Declared) -> None:
    declared.exchange("x", "topic", durable=True, arguments={"alternate-exchange": "a", "other": 1})
    before = len(declared.log)
    declared.exchange("x", "topic", durable=True, arguments={"alternate-exchange": "a"})
    declared.exchange("x", "topic", passive=True)
    declared.exchange("x", "no such type", passive=True)
    declared.exchange("amq.topic", "topic", durable=True)
    assert len(declared.log) == before


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (
            {"kind": "fanout"},
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
        ),
        (
            {"kind": "x-consistent-hash"},
            "'type' for exchange 'x' in vhost '/': received ''x-consistent-hash'' but current is 'direct'",
        ),
        (
            {"durable": True},
            "'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"auto_delete": True},
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"internal": True},
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"arguments": {"alternate-exchange": "b"}},
            "'alternate-exchange' for exchange 'x' in vhost '/': "
            "received the value 'b' of type 'longstr' but current is none",
        ),
    ],
)
def test_a_second_exchange_that_differs_is_refused(
    declared: Declared, again: dict[str, Any], text: str
) -> None:
    declared.exchange("x")
    refused(
        ReplyCode.PRECONDITION_FAILED, f"inequivalent arg {text}", lambda: declared.exchange("x", **again)
    )


def test_an_unknown_type_ends_the_connection(declared: Declared) -> None:
    refused(ReplyCode.COMMAND_INVALID, "unknown exchange type 'nope'", lambda: declared.exchange("x", "nope"))


def test_a_passive_exchange_has_to_be_there(declared: Declared) -> None:
    text = "no exchange 'x' in vhost '/'"
    refused(ReplyCode.NOT_FOUND, text, lambda: declared.exchange("x", passive=True))


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (
            "direct",
            {"alternate-exchange": 5},
            "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
        ),
        (
            "x-delayed-message",
            {},
            "Invalid argument, 'x-delayed-type' must be an existing exchange type",
        ),
        (
            "x-delayed-message",
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
        (
            "x-consistent-hash",
            {"hash-header": "h", "hash-property": "message_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ("x-consistent-hash", {"hash-property": "app_id"}, "Unsupported property: app_id"),
        (
            "x-headwater-topic",
            {},
            "invalid arg 'topic' for exchange 'x' in vhost '/': expected the name of a topic",
        ),
        (
            "x-headwater-topic",
            {"topic": ".."},
            "invalid arg 'topic' for exchange 'x' in vhost '/': Topic name is invalid: '..' is not allowed",
        ),
    ],
)
def test_exchanges_that_are_refused(
    declared: Declared, kind: str, arguments: dict[str, Any], text: str
) -> None:
    refused(ReplyCode.PRECONDITION_FAILED, text, lambda: declared.exchange("x", kind, arguments=arguments))


def test_a_delayed_exchange_wraps_a_type_that_there_is(declared: Declared) -> None:
    refused(
        ReplyCode.COMMAND_INVALID,
        "unknown exchange type 'nope'",
        lambda: declared.exchange("x", "x-delayed-message", arguments={"x-delayed-type": "nope"}),
    )


def test_the_default_exchange_is_left_alone(declared: Declared) -> None:
    declared.queue("q")
    for attempt in (
        lambda: declared.exchange(""),
        lambda: declared.exchange("", passive=True),
        lambda: declared.definitions.delete_exchange("/", ""),
        lambda: declared.bind("", "q", "k"),
        lambda: declared.unbind("", "q", "q"),
        lambda: declared.bind_exchange("amq.direct", ""),
    ):
        refused(ReplyCode.ACCESS_REFUSED, DEFAULT_REFUSED, attempt)


def test_predeclared_exchanges_cannot_be_deleted(declared: Declared) -> None:
    refused(
        ReplyCode.ACCESS_REFUSED,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        lambda: declared.definitions.delete_exchange("/", "amq.direct"),
    )


def test_an_exchange_with_bindings_from_it_is_in_use(declared: Declared) -> None:
    declared.exchange("x")
    declared.queue("q")
    declared.bind_exchange("amq.fanout", "x")
    declared.bind("x", "q", "k")
    refused(
        ReplyCode.PRECONDITION_FAILED,
        "exchange 'x' in vhost '/' in use",
        lambda: declared.definitions.delete_exchange("/", "x", if_unused=True),
    )
    declared.unbind("x", "q", "k")
    declared.apply(declared.definitions.delete_exchange("/", "x", if_unused=True))
    assert "x" not in declared.definitions.vhosts["/"].exchanges
    assert list(declared.definitions.vhosts["/"].bindings) == []


def test_clients_do_not_publish_to_internal_exchanges(declared: Declared) -> None:
    declared.exchange("x", internal=True)
    check = declared.definitions.check_publish
    refused(
        ReplyCode.ACCESS_REFUSED,
        "cannot publish to internal exchange 'x' in vhost '/'",
        lambda: check("/", "x"),
    )
    refused(ReplyCode.NOT_FOUND, "no exchange 'y' in vhost '/'", lambda: check("/", "y"))
    assert check("/", "").kind is ExchangeKind.DIRECT


# Bindings


def test_a_binding_is_itself_by_everything_about_it(declared: Declared) -> None:
    declared.queue("q")
    assert declared.bind("amq.direct", "q", "k", {"b": 1, "a": 2})
    assert declared.bind("amq.direct", "q", "k", {"a": 2, "b": 1}) == []
    assert declared.bind("amq.direct", "q", "k")
    assert declared.bind("amq.direct", "q", "l")
    assert declared.unbind("amq.direct", "q", "k", {"a": True}) == []
    assert declared.unbind("amq.direct", "q", "k", {"a": 2, "b": 1})
    assert list(declared.definitions.vhosts["/"].bindings) == [
        Binding("amq.direct", "q", "queue", "k"),
        Binding("amq.direct", "q", "queue", "l"),
    ]
    assert declared.reached("amq.direct", "k") == ["q"]


def test_both_ends_of_a_binding_have_to_be_there_and_the_source_is_missed_first(declared: Declared) -> None:
    refused(ReplyCode.NOT_FOUND, "no exchange 'x' in vhost '/'", lambda: declared.bind("x", "q"))
    refused(ReplyCode.NOT_FOUND, "no queue 'q' in vhost '/'", lambda: declared.bind("amq.direct", "q"))
    refused(
        ReplyCode.NOT_FOUND,
        "no exchange 'x' in vhost '/'",
        lambda: declared.bind_exchange("amq.direct", "x"),
    )


def test_what_is_not_bound_needs_no_unbinding(declared: Declared) -> None:
    assert declared.unbind("no exchange", "no queue", "k") == []
    declared.queue("q")
    assert declared.unbind("amq.direct", "q", "k") == []


@pytest.mark.parametrize(
    ("exchange", "key", "arguments", "text"),
    [
        (
            "amq.headers",
            "",
            {"x-match": "some"},
            'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
        ),
        (
            "amq.match",
            "",
            {"x-match": 5},
            "Invalid x-match field type signedint (value 5); expected longstr",
        ),
        (
            "amq.match",
            "",
            {"x-match": None},
            "Invalid x-match field type void (value undefined); expected longstr",
        ),
        ("hash", "0", {}, "The binding key must be greater than 0"),
        ("hash", "-3", {}, "The binding key must be greater than 0"),
        ("hash", "many", {}, 'The binding key must be an integer: <<"many">>'),
        ("hash", "", {}, "The binding key must be an integer: <<>>"),
        ("topic", "", {}, "exchange 'topic' in vhost '/' appends to topic 't' and has no bindings"),
    ],
)
def test_bindings_that_are_refused(
    declared: Declared, exchange: str, key: str, arguments: dict[str, Any], text: str
) -> None:
    declared.queue("q")
    declared.exchange("hash", "x-consistent-hash")
    declared.exchange("topic", "x-headwater-topic", arguments={"topic": "t"})
    refused(ReplyCode.PRECONDITION_FAILED, text, lambda: declared.bind(exchange, "q", key, arguments))


def test_deleting_a_queue_takes_its_bindings_along(declared: Declared) -> None:
    declared.queue("q")
    declared.queue("r")
    declared.bind("amq.fanout", "q")
    declared.bind("amq.fanout", "r")
    declared.bind("amq.direct", "q", "k")
    declared.apply(declared.definitions.delete_queue("/", "q", owner=ME))
    assert declared.reached("amq.fanout") == ["r"]
    declared.queue("q")
    assert declared.reached("amq.fanout") == ["r"]
    assert declared.reached("amq.direct", "k") == []


def test_an_auto_delete_exchange_goes_with_its_last_binding_and_takes_others_along(
    declared: Declared,
) -> None:
    declared.queue("q")
    for name in ("a", "b", "c"):
        declared.exchange(name, "fanout", auto_delete=True)
    declared.bind_exchange("a", "b")
    declared.bind_exchange("b", "c")
    declared.bind("c", "q", "1")
    declared.bind("c", "q", "2")
    declared.unbind("c", "q", "1")
    assert "c" in declared.definitions.vhosts["/"].exchanges
    declared.apply(declared.definitions.delete_queue("/", "q"))
    assert set(declared.definitions.vhosts["/"].exchanges) & {"a", "b", "c"} == set()
    assert list(declared.definitions.vhosts["/"].bindings) == []


def test_an_auto_delete_exchange_that_never_had_a_binding_stays(declared: Declared) -> None:
    declared.exchange("x", auto_delete=True)
    declared.queue("q")
    declared.apply(declared.definitions.delete_queue("/", "q"))
    assert "x" in declared.definitions.vhosts["/"].exchanges


# Virtual hosts


def test_virtual_hosts_share_nothing(declared: Declared) -> None:
    refused(
        ReplyCode.NOT_ALLOWED, "vhost there not found", lambda: declared.definitions.virtual_host("there")
    )
    declared.apply(declared.definitions.add_vhost("there"))
    assert declared.definitions.add_vhost("there") == []
    declared.queue("q", vhost="there")
    assert declared.reached("", "q") == []
    assert declared.reached("", "q", vhost="there") == ["q"]


def test_a_virtual_host_goes_with_all_that_is_in_it(declared: Declared) -> None:
    before = state_of(declared.definitions)
    declared.apply(declared.definitions.add_vhost("there"))
    declared.queue("q", vhost="there")
    declared.exchange("x", vhost="there")
    declared.apply(declared.definitions.bind("there", "x", "q", "queue", "k"))
    declared.apply(declared.definitions.delete_vhost("there"))
    assert state_of(declared.definitions) == before
    assert declared.compacted() == []
    refused(ReplyCode.NOT_FOUND, "no vhost 'there'", lambda: declared.definitions.delete_vhost("there"))


def test_the_first_virtual_host_stays(declared: Declared) -> None:
    with pytest.raises(AmqpError, match="cannot be deleted"):
        declared.definitions.delete_vhost("/")
    with pytest.raises(AmqpError, match="1 to 255 bytes"):
        declared.definitions.add_vhost("")


# Restarts


def test_what_is_durable_survives_a_restart(declared: Declared) -> None:
    declared.queue("kept", durable=True, arguments={"x-max-length": 5})
    declared.queue("transient")
    declared.queue("mine", durable=True, exclusive=True)
    declared.exchange("x", "fanout", durable=True)
    declared.exchange("brief", "fanout")
    for exchange in ("x", "brief", "amq.fanout"):
        for queue in ("kept", "transient", "mine"):
            declared.bind(exchange, queue)
    declared.restart()
    vhost = declared.definitions.vhosts["/"]
    assert list(vhost.queues) == ["kept"]
    assert "x" in vhost.exchanges
    assert "brief" not in vhost.exchanges
    assert set(map(str, vhost.bindings)) == {
        str(Binding(source, "kept", "queue", "")) for source in ("x", "amq.fanout")
    }
    assert declared.definitions.forget_transient() == []


def test_a_binding_may_be_read_before_what_it_binds(declared: Declared) -> None:
    """As in a log of which compaction has been through one part and not yet the other."""
    declared.exchange("x", durable=True)
    declared.queue("q", durable=True)
    declared.bind("x", "q", "k")
    exchange, queue, binding = declared.log
    for order in ([binding, exchange, queue], [binding, queue, exchange], [queue, binding, exchange]):
        declared.restart(order)
        assert declared.reached("x", "k") == ["q"]
    declared.restart([binding])
    assert list(declared.definitions.vhosts["/"].bindings) == []


def test_nothing_stays_behind_of_what_is_gone(declared: Declared) -> None:
    declared.queue("q", exclusive=True)
    declared.exchange("x", "topic")
    declared.bind("x", "q", "a.#")
    declared.bind_exchange("amq.fanout", "x")
    declared.apply(declared.definitions.delete_exchange("/", "x"))
    declared.apply(declared.definitions.delete_queue("/", "q"))
    vhost = declared.definitions.vhosts["/"]
    assert vhost.bindings_from("x") == vhost.bindings_from("amq.fanout") == {}
    assert vhost.bindings_to("queue", "q") == vhost.bindings_to("exchange", "x") == {}
    assert vhost.owned_by(ME) == []
    assert declared.compacted() == []


def test_the_version_grows_with_every_change(declared: Declared) -> None:
    versions = [declared.definitions.version]
    declared.queue("q")
    versions.append(declared.definitions.version)
    declared.bind("amq.direct", "q", "k")
    versions.append(declared.definitions.version)
    declared.unbind("amq.direct", "q", "k")
    versions.append(declared.definitions.version)
    assert versions == sorted(set(versions))
