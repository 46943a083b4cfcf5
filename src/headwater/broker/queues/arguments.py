"""The arguments of queues: what each means, and what is refused.

The checks, their order and their texts are RabbitMQ's; some of the texts are Erlang's terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, cast

from headwater.broker import topic_names
from headwater.broker.queues.equivalence import type_name
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table

QueueType = Literal["classic", "quorum"]
Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]

TOPIC: Final = "x-headwater-topic"
"""Names the topic that the queue is fed from."""
OFFSET: Final = "x-headwater-offset"
"""Where in the topic a new queue begins, as `x-stream-offset` says it of RabbitMQ's streams: first, last, next
(the default: what comes from now on), an offset, or a timestamp."""

MAX_EXPIRY_MS: Final = 10 * 365 * 24 * 3_600_000
MAX_PRIORITY: Final = 255


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue's arguments ask for; None where nothing is asked."""

    queue_type: QueueType = "classic"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    topic: str | None = None

    @classmethod
    def of(cls, arguments: Table) -> QueueSettings:
        """Return the settings of arguments that were checked when the queue was declared."""
        quorum = arguments.get("x-queue-type") == "quorum"
        overflow = arguments.get("x-overflow", "drop-head")
        if quorum and overflow == "reject-publish-dlx":
            overflow = "drop-head"  # RabbitMQ's quorum queues warn of it, and do this
        limit = _number_of(arguments, "x-delivery-limit")
        return cls(
            queue_type="quorum" if quorum else "classic",
            message_ttl_ms=_number_of(arguments, "x-message-ttl"),
            expires_ms=_number_of(arguments, "x-expires"),
            max_length=_number_of(arguments, "x-max-length"),
            max_length_bytes=_number_of(arguments, "x-max-length-bytes"),
            overflow=cast(Overflow, overflow),
            dead_letter_exchange=text_of(arguments, "x-dead-letter-exchange"),
            dead_letter_routing_key=text_of(arguments, "x-dead-letter-routing-key"),
            max_priority=_number_of(arguments, "x-max-priority"),
            single_active_consumer=arguments.get("x-single-active-consumer") is True,
            delivery_limit=None if limit is None or limit < 0 else limit,
            topic=text_of(arguments, TOPIC),
        )


# Checks of a new queue

Check = Callable[[Any, Table], str | None]
"""Takes a value and all arguments, and returns what is wrong as RabbitMQ shows it, or None."""


def _whole(value: Any, _: Table) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return f'"expected integer, got {type_name(value)}"'


def _not_negative(value: Any, arguments: Table) -> str | None:
    return _whole(value, arguments) or (f"{{value_negative,{value}}}" if value < 0 else None)


def _positive(value: Any, arguments: Table) -> str | None:
    return _not_negative(value, arguments) or ("{value_zero,0}" if value == 0 else None)


def _time(value: Any, arguments: Table) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong or (f"{{value_too_large,{value}}}" if value > MAX_EXPIRY_MS else None)


def _expires(value: Any, arguments: Table) -> str | None:
    return _time(value, arguments) or ("{value_zero,0}" if value == 0 else None)


def _priority(value: Any, arguments: Table) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong or (f"{{max_value_exceeded,{value}}}" if value > MAX_PRIORITY else None)


def _version(value: Any, arguments: Table) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong or (f"\"unsupported queue version '{value}'\"" if value not in (1, 2) else None)


def _flag(value: Any, _: Table) -> str | None:
    return None if isinstance(value, bool) else _bad_type(value)


def _text(value: Any, _: Table) -> str | None:
    return None if isinstance(value, str) else _bad_type(value)


def _dead_letter_key(value: Any, arguments: Table) -> str | None:
    wrong = _text(value, arguments)
    return wrong or (None if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined")


def _topic(value: Any, arguments: Table) -> str | None:
    return _text(value, arguments) or topic_names.problem_with(value)


def _offset(value: Any, arguments: Table) -> str | None:
    if TOPIC not in arguments:
        return f"it needs {TOPIC}"
    if isinstance(value, datetime) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return None
    if value in ("first", "last", "next"):
        return None
    return "expected first, last, next, an offset or a timestamp"


def _one_of(known: Sequence[str], wrong: str) -> Check:
    """Return the check of a choice; `wrong` is RabbitMQ's word for another, perhaps with the value in it."""

    def check(value: Any, arguments: Table) -> str | None:
        return _text(value, arguments) or (None if value in known else wrong.format(value))

    return check


def _type(value: Any, arguments: Table) -> str | None:
    wrong = _KNOWN_TYPE(value, arguments)
    if wrong is not None and value == "stream":
        wrong += f": use a topic, and queues with '{TOPIC}' to consume it"
    return wrong


def _bad_type(value: Any) -> str:
    return f"{{unacceptable_type,{type_name(value)}}}"


_KNOWN_TYPE: Final = _one_of(("classic", "quorum"), "\"unsupported queue type '{}'\"")
_CHECKS: Final[dict[str, Check]] = {
    "x-expires": _expires,
    "x-message-ttl": _time,
    "x-dead-letter-exchange": _text,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _priority,
    "x-overflow": _one_of(("drop-head", "reject-publish", "reject-publish-dlx"), "invalid_overflow"),
    "x-queue-mode": _one_of(("default", "lazy"), "\"unsupported queue mode '{}'\""),
    "x-queue-version": _version,
    "x-single-active-consumer": _flag,
    "x-queue-type": _type,
    "x-quorum-initial-group-size": _positive,
    "x-queue-leader-locator": _one_of(
        ("client-local", "balanced", "random", "least-leaders"), "invalid_queue_locator_arg"
    ),
    "x-delivery-limit": _whole,
    TOPIC: _topic,
    OFFSET: _offset,
}
_KNOWN: Final[dict[QueueType, tuple[str, ...]]] = {
    "classic": (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
        "x-queue-leader-locator",  # since RabbitMQ 4.0
        TOPIC,
        OFFSET,
    ),
    "quorum": (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        TOPIC,
        OFFSET,
    ),
}
"""The arguments that each type of queue knows, in the order in which RabbitMQ compares them."""
_STREAM_ONLY: Final = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
_STORED_ONLY: Final = ("x-max-length", "x-max-length-bytes", "x-overflow", "x-max-priority")
"""What means nothing to a queue that is fed from a topic."""
_ANY_TYPE_KNOWS: Final = frozenset((*_KNOWN["classic"], *_KNOWN["quorum"], *_STREAM_ONLY))


def check_new_queue(
    arguments: Table, resource: str, *, durable: bool, exclusive: bool, auto_delete: bool
) -> QueueSettings:
    """Refuse a queue that may not be declared, or return what its arguments ask for."""
    check_name_argument(arguments, "x-dead-letter-exchange", resource)
    _check_value("x-queue-type", arguments, resource)
    settings = QueueSettings.of(arguments)
    known = _KNOWN[settings.queue_type]
    for name in _CHECKS:
        if name in known:
            _check_value(name, arguments, resource)
    for name in arguments:
        if name in _ANY_TYPE_KNOWS and name not in known:
            raise _refused(
                f"invalid arg '{name}' for {resource} of queue type rabbit_{settings.queue_type}_queue"
            )
    if settings.topic is not None:
        for name in _STORED_ONLY:
            if name in arguments:
                raise _refused(
                    f"invalid arg '{name}' for {resource}: its messages are in topic '{settings.topic}'"
                )
    if settings.queue_type == "quorum":
        wrong = {"auto-delete": auto_delete, "exclusive-owner": exclusive, "non-durable": not durable}
        for name, found in wrong.items():
            if found:
                raise _refused(f"invalid property '{name}' for {resource}")
    return settings


def _check_value(name: str, arguments: Table, resource: str) -> None:
    if name in arguments:
        wrong = _CHECKS[name](arguments[name], arguments)
        if wrong is not None:
            raise _refused(f"invalid arg '{name}' for {resource}: {wrong}")


def check_name_argument(arguments: Table, name: str, resource: str) -> None:
    """Refuse an argument that shall name an exchange and is no string."""
    if name in arguments and not isinstance(arguments[name], str):
        raise _refused(f"invalid type '{type_name(arguments[name])}' for arg '{name}' in {resource}")


def check_server_named(arguments: Table) -> None:
    """Refuse to make up a name for a queue of a type that has none such."""
    if arguments.get("x-queue-type") == "quorum":
        raise _refused("Cannot declare a server-named queue for type rabbit_quorum_queue")


def compared_for(settings: QueueSettings) -> tuple[str, ...]:
    """Return the arguments that a second declaration has to repeat."""
    return _KNOWN[settings.queue_type]


def text_of(arguments: Table, name: str) -> str | None:
    """Return an argument that is a string, or None."""
    value = arguments.get(name)
    return value if isinstance(value, str) else None


def _number_of(arguments: Table, name: str) -> int | None:
    value = arguments.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _refused(text: str) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text)
