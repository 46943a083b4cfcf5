"""Client quotas: who may take how much, replayed from the metadata log.

    quota/[["client-id","reports"],["user","ann"]]   {"version": 1, "values": {"producer_byte_rate": 1048576}}

An entity is one or two of user and client id, or an address; a name that is null is the default one, for
everybody without a quota of their own. For each key the first of these that has a value counts, as in
Kafka: user and client id, user and default client id, user, default user and client id, both
defaults, default user, client id, default client id. Whoever falls under the same entity shares its rate.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

__all__ = [
    "CLIENT_ID",
    "CONNECTIONS",
    "CONSUMED",
    "IP",
    "MUTATIONS",
    "PRODUCED",
    "REQUESTS",
    "USER",
    "Alteration",
    "Component",
    "Entity",
    "Grant",
    "Quotas",
    "entity_of",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCED: Final = "producer_byte_rate"
CONSUMED: Final = "consumer_byte_rate"
REQUESTS: Final = "request_percentage"
CONNECTIONS: Final = "connection_creation_rate"
MUTATIONS: Final = "controller_mutation_rate"

_WHOLE: Final = {PRODUCED: 2**63 - 1, CONSUMED: 2**63 - 1, CONNECTIONS: 2**31 - 1}
_CLIENT_KEYS: Final = frozenset({PRODUCED, CONSUMED, REQUESTS, MUTATIONS})
_IP_KEYS: Final = frozenset({CONNECTIONS})

_PREFIX: Final = b"quota/"
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2

Entity = tuple[tuple[str, str | None], ...]
"""The types and names that a quota is for, in the order of the types."""

Refusal = tuple[ErrorCode, str]


@dataclass(frozen=True, slots=True)
class Alteration:
    """A request to set some values of one entity, and to remove those that are None."""

    entity: Sequence[tuple[str, str | None]]
    values: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Component:
    """One condition of a search: an entity type, and which of its names fit."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may take in a second, and under which name it is counted."""

    taker: tuple[str, str | None, str | None]
    limit: float


class Quotas:
    """The state machine of quotas."""

    def __init__(self) -> None:
        self.by_entity: dict[Entity, dict[str, float]] = {}

    # -- asking ----------------------------------------------------------------------------------

    def client(self, key: str, user: str, client_id: str) -> Grant | None:
        """Return what a user's client may take, or None where nothing limits it."""
        quotas = self.by_entity
        for user_name in (user, None):
            for client_name in (client_id, None):
                values = quotas.get(((CLIENT_ID, client_name), (USER, user_name)))
                if values is not None and key in values:
                    return Grant((key, user, client_id), values[key])
            values = quotas.get(((USER, user_name),))
            if values is not None and key in values:
                return Grant((key, user, None), values[key])
        for client_name in (client_id, None):
            values = quotas.get(((CLIENT_ID, client_name),))
            if values is not None and key in values:
                return Grant((key, None, client_id), values[key])
        return None

    def address(self, host: str) -> Grant | None:
        """Return how many connections an address may open in a second."""
        for name in (host, None):
            values = self.by_entity.get(((IP, name),))
            if values is not None and CONNECTIONS in values:
                return Grant((CONNECTIONS, host, None), values[CONNECTIONS])
        return None

    def describe(
        self, components: Sequence[Component], *, strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """Return the entities that fit every component and, if strict, have no other types."""
        wanted = _conditions(components)
        return [
            (entity, values)
            for entity, values in self.by_entity.items()
            if not (strict and len(entity) != len(wanted)) and _fits(dict(entity), wanted)
        ]

    # -- changing --------------------------------------------------------------------------------

    def alter(self, alterations: Sequence[Alteration]) -> tuple[list[StateRecord], list[Refusal | None]]:
        """Return the records of the changes that fit, and for each alteration why it does not."""
        records: list[StateRecord] = []
        answers: list[Refusal | None] = []
        seen: set[Entity] = set()
        for alteration in alterations:
            try:
                entity = entity_of(alteration.entity)
                if entity in seen:
                    raise ApiError(ErrorCode.invalid_request, f"Ignoring duplicate entity {_named(entity)}")
                seen.add(entity)
                record = self._changed(entity, alteration.values)
            except ApiError as error:
                answers.append((error.code, error.message))
            else:
                answers.append(None)
                if record is not None:
                    records.append(record)
        return records, answers

    def _changed(self, entity: Entity, values: Sequence[tuple[str, float | None]]) -> StateRecord | None:
        if len({key for key, _ in values}) < len(values):
            raise ApiError(
                ErrorCode.invalid_request,
                f"Duplicate quota key: nothing is changed for the entity {_named(entity)}",
            )
        allowed = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
        current = self.by_entity.get(entity, {})
        changed = dict(current)
        for key, value in values:
            if value is None:
                changed.pop(key, None)
            else:
                _check_value(key, value, allowed)
                changed[key] = value
        if changed == current:
            return None
        body = json.dumps({"version": 1, "values": changed}).encode() if changed else None
        return StateRecord(_PREFIX + json.dumps(entity).encode(), body)

    def replay(self, record: StateRecord) -> bool:
        """Take a record of the metadata log; tell whether it was about quotas."""
        if not record.key.startswith(_PREFIX):
            return False
        entity = tuple((kind, name) for kind, name in json.loads(record.key[len(_PREFIX) :]))
        if record.value is None:
            self.by_entity.pop(entity, None)
        else:
            self.by_entity[entity] = json.loads(record.value)["values"]
        return True


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return an entity in its one form, or raise `ApiError` where there is no such."""
    entity = tuple(sorted(parts, key=lambda part: part[0]))
    kinds = [kind for kind, _ in entity]
    if not entity:
        raise ApiError(ErrorCode.invalid_request, "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.invalid_request, f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            problem = f"Invalid client quota entity, duplicate entity entry {kind}"
            raise ApiError(ErrorCode.invalid_request, problem)
        if name == "":
            raise ApiError(ErrorCode.invalid_request, f"Empty {kind} not supported")
    if IP in kinds:
        if len(kinds) > 1:
            problem = (
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
            raise ApiError(ErrorCode.invalid_request, problem)
        _check_address(entity[0][1])
    return entity


def _check_address(name: str | None) -> None:
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        problem = f"{name} is not a valid IP or resolvable host."
        raise ApiError(ErrorCode.invalid_request, problem) from None


def _check_value(key: str, value: float, allowed: frozenset[str]) -> None:
    if key not in allowed:
        raise ApiError(ErrorCode.invalid_request, f"Invalid configuration key {key}")
    if not value > 0.0:
        raise ApiError(ErrorCode.invalid_request, f"Quota {key} must be greater than 0")
    largest = _WHOLE.get(key)
    if largest is None:
        if value == float("inf"):
            raise ApiError(ErrorCode.invalid_request, f"Proposed value for {key} is too large.")
        return
    if value > largest:
        raise ApiError(ErrorCode.invalid_request, f"Proposed value for {key} is too large.")
    if abs(value % 1.0) > 1e-6:
        raise ApiError(ErrorCode.invalid_request, f"{key} cannot be a fractional value.")


def _conditions(components: Sequence[Component]) -> dict[str, Component]:
    wanted: dict[str, Component] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.invalid_request, "Invalid empty entity type.")
        if kind in wanted:
            problem = f"Entity type {kind} cannot appear more than once in the filter."
            raise ApiError(ErrorCode.invalid_request, problem)
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise ApiError(ErrorCode.invalid_request, f"Unknown match type {component.match_type}")
        if (component.match_type == _EXACT) != (component.match is not None):
            problem = "A name is given with the match type EXACT, and with no other."
            raise ApiError(ErrorCode.invalid_request, problem)
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component.",
        )
    return wanted


def _fits(entity: Mapping[str, str | None], wanted: Mapping[str, Component]) -> bool:
    return all(
        kind in entity and (component.match_type == _SPECIFIED or entity[kind] == component.match)
        for kind, component in wanted.items()
    )


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)
