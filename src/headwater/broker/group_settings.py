"""The settings of a single group: Kafka 4.3's names, kinds, defaults and bounds.

A group's own value comes first, then the broker's setting that stands for it (`consumer.session.timeout.ms` is
`group.consumer.session.timeout.ms` there), then the default. What a group may set lies between two more settings
of the broker, such as `group.consumer.min.session.timeout.ms`. Both are made from this table, for
`groups.settings` to list. A group has settings before it has members, and keeps them when it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from headwater.core.errors import SettingError
from headwater.core.settings import Kind, Setting, Settings, Value, between, one_of

__all__ = [
    "GROUP_CONFIGS",
    "broker_synonym",
    "check_group",
    "for_broker",
    "group_defaults",
    "parse_group",
    "reset_duration_ms",
    "resolve_group",
]

_STREAMS: Final = "Accepted for Kafka's tools; there are no streams groups here."
_AT_ONCE: Final = "Accepted for Kafka's tools; partitions are assigned anew as soon as members change."
_RENEW: Final = "Whether members of a share group may extend the lock of a record that they work on."
_RESET: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
"""What Java's `Duration.parse` takes: days, hours, minutes and seconds, each with a sign of its own."""


@dataclass(frozen=True)
class _Number:
    """A number of a group: its default, the least that is ever valid, and what the broker's bounds begin with."""

    name: str
    default: int
    floor: int
    least: int | None
    most: int | None
    help: str

    @property
    def setting(self) -> Setting:
        """The group's own setting."""
        return Setting(self.name, Kind.INT, self.default, self.help, between(self.floor))

    @property
    def stand_in(self) -> str:
        """The broker's setting for all groups."""
        return f"group.{self.name}"

    @property
    def bounds(self) -> tuple[str | None, str | None]:
        """The broker's settings that a group's own value lies between."""
        family, what = self.name.split(".", 1)
        what = what.removeprefix("num.")
        return (
            None if self.least is None else f"group.{family}.min.{what}",
            None if self.most is None else f"group.{family}.max.{what}",
        )


_NUMBERS: Final = (
    _Number(
        "consumer.session.timeout.ms",
        45_000,
        1,
        45_000,
        60_000,
        "A member of the consumer protocol that is silent for this long leaves its group.",
    ),
    _Number(
        "consumer.heartbeat.interval.ms",
        5000,
        1,
        5000,
        15_000,
        "How often members of the consumer protocol are told to send a heartbeat.",
    ),
    _Number("consumer.assignment.interval.ms", 1000, 0, 0, 15_000, _AT_ONCE),
    _Number(
        "share.session.timeout.ms",
        45_000,
        1,
        45_000,
        60_000,
        "A member of a share group that is silent for this long leaves it.",
    ),
    _Number(
        "share.heartbeat.interval.ms",
        5000,
        1,
        5000,
        15_000,
        "How often members of a share group are told to send a heartbeat.",
    ),
    _Number("share.assignment.interval.ms", 1000, 0, 0, 15_000, _AT_ONCE),
    _Number(
        "share.record.lock.duration.ms",
        30_000,
        1000,
        15_000,
        60_000,
        "How long a record is locked for the member of a share group that got it.",
    ),
    _Number(
        "share.delivery.count.limit",
        5,
        2,
        2,
        10,
        "How often a record is delivered to a share group before it is given up.",
    ),
    _Number(
        "share.partition.max.record.locks",
        2000,
        100,
        100,
        4000,
        "The most records of a partition that a share group has in flight.",
    ),
    _Number("streams.session.timeout.ms", 45_000, 1, 45_000, 60_000, _STREAMS),
    _Number("streams.heartbeat.interval.ms", 5000, 1, 5000, 15_000, _STREAMS),
    _Number("streams.assignment.interval.ms", 1000, 0, 0, 15_000, _STREAMS),
    _Number("streams.num.standby.replicas", 0, 0, None, 2, _STREAMS),
    _Number("streams.initial.rebalance.delay.ms", 3000, 0, None, None, _STREAMS),
)


def reset_duration_ms(text: str) -> int | None:
    """Return how far back `by_duration:PT1H` reaches, or None where `text` is no such.

    >>> reset_duration_ms("by_duration:P1DT2.5S")
    86402500
    """
    found = _DURATION.fullmatch(text.removeprefix(_RESET)) if text.startswith(_RESET) else None
    if found is None or not any(found.groups()[1:]):
        return None
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    part = int((fraction or "0").ljust(9, "0")) // 1_000_000
    duration_ms = whole * 1000 + (-part if (seconds or "").startswith("-") else part)
    duration_ms = -duration_ms if sign == "-" else duration_ms
    return duration_ms if duration_ms >= 0 else None


def _reset(text: str) -> str | None:
    if text in ("earliest", "latest") or reset_duration_ms(text) is not None:
        return None
    return "must be earliest, latest, or by_duration: and a duration such as PT1H"


GROUP_CONFIGS: Final = Settings(
    *(number.setting for number in _NUMBERS),
    Setting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        "Where a share group begins in a partition that is new to it: `earliest`, `latest`, or the records of the "
        "last hour with `by_duration:PT1H`.",
        _reset,
    ),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether a share group gets all records, or with `read_committed` only those of no transaction or one that "
        "was committed.",
        one_of("read_committed", "read_uncommitted"),
    ),
    Setting("share.renew.acknowledge.enable", Kind.BOOLEAN, True, _RENEW),
)

_BY_NAME: Final = {number.name: number for number in _NUMBERS}
_WHAT: Final = ("least", "most")
_FAMILIES: Final = ("consumer", "share", "streams")


def broker_synonym(name: str) -> str | None:
    """Return the broker's setting that stands for a group's, or None where there is none."""
    return _BY_NAME[name].stand_in if name in _BY_NAME else None


def for_broker() -> Iterator[Setting]:
    """Yield the broker's settings that stand for those of groups, and those that bound them."""
    for number in _NUMBERS:
        check = between(number.floor)
        text = f"Stands for `{number.name}` of every group. {number.help}"
        yield Setting(number.stand_in, Kind.INT, number.default, text, check)
        for bound, value, what in zip(number.bounds, (number.least, number.most), _WHAT, strict=True):
            if bound is not None:
                text = f"The {what} that a single group may set `{number.name}` to."
                yield Setting(bound, Kind.INT, value, text, check)


_BROKER: Final = {setting.name: setting.default for setting in for_broker()}


def parse_group(name: str, text: str) -> Value:
    """Return the value of a group's setting, or raise `SettingError` in Kafka's words."""
    if name not in GROUP_CONFIGS:
        raise SettingError(f"Unknown group config name: {name}")
    setting = GROUP_CONFIGS[name]
    try:
        return setting.parse(text)
    except SettingError:
        problem = f"Invalid value {text} for configuration {name}: {_problem(setting, text)}"
    raise SettingError(problem)


def _problem(setting: Setting, text: str) -> str:
    if setting.kind is Kind.BOOLEAN:
        return "Expected value to be either true or false"
    if setting.kind is Kind.INT:
        if not re.fullmatch(r"[-+]?\d+", text.strip()) or not -(2**31) <= int(text) < 2**31:
            return "Not a number of type INT"
        return f"Value must be at least {_BY_NAME[setting.name].floor}"
    if setting.check is _reset:
        return (
            f"Invalid value `{text}` for configuration {setting.name}. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    return "String must be one of: read_committed, read_uncommitted"


def check_group(overrides: Mapping[str, str], broker: Mapping[str, Value]) -> None:
    """Raise `SettingError` unless a group may have these settings under the broker's."""
    own = {name: parse_group(name, text) for name, text in overrides.items()}
    for name, value in own.items():
        least, most = _limits(name, broker)
        if least is not None and _int(value) < least:
            problem = f"{name} must be greater than or equal to {_BY_NAME[name].bounds[0]}"
            raise SettingError(problem)
        if most is not None and _int(value) > most:
            raise SettingError(f"{name} must be less than or equal to {_BY_NAME[name].bounds[1]}")
    settings = group_defaults(broker) | own
    for family in _FAMILIES:
        session, interval = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if (session in own or interval in own) and _int(settings[session]) <= _int(settings[interval]):
            raise SettingError(f"{session} must be greater than {interval}")


def group_defaults(broker: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings of a group without any of its own, under a broker's resolved settings."""
    given = {number.name: broker.get(number.stand_in, number.default) for number in _NUMBERS}
    return {setting.name: given.get(setting.name, setting.default) for setting in GROUP_CONFIGS}


def resolve_group(overrides: Mapping[str, str], broker: Mapping[str, Value]) -> dict[str, Value]:
    """Return what is in force for a group: its own settings, as far as the broker's bounds let them, over `broker`'s.

    They were checked when they were set, but the broker may have been started with other bounds since.
    """
    settings = group_defaults(broker)
    for name, text in overrides.items():
        value = parse_group(name, text)
        least, most = _limits(name, broker)
        if least is not None:
            value = max(_int(value), least)
        if most is not None:
            value = min(_int(value), most)
        settings[name] = value
    return settings


def _limits(name: str, broker: Mapping[str, Value]) -> tuple[int | None, int | None]:
    least, most = _BY_NAME[name].bounds if name in _BY_NAME else (None, None)
    return (
        None if least is None else _int(broker.get(least, _BROKER[least])),
        None if most is None else _int(broker.get(most, _BROKER[most])),
    )


def _int(value: Value) -> int:
    return cast(int, value)
