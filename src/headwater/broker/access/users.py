"""The users: names and salted credentials, replayed from the metadata log.

    user/NAME      {"version": 1, "scram": {"SCRAM-SHA-256": {"salt", "stored_key", "server_key", "iterations"}}}
    access/decoy   {"version": 1, "secret"}

A password is never here: administrators salt it before they send it, and PLAIN's is salted and compared.
The secret makes decoys: for a name that is nobody's, a credential that is the same whenever it is
asked for, also after a restart, so that asking does not tell whether the user exists.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.broker.access.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    ScramMechanism,
    credential_from_salted,
)
from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode

__all__ = ["Deletion", "Refusal", "Upsertion", "Users"]

_USER: Final = b"user/"
_DECOY: Final = b"access/decoy"
_PREFERENCE: Final = (ScramMechanism.SHA_512, ScramMechanism.SHA_256)
_FIRST: Final = (ScramMechanism.SHA_512, DEFAULT_ITERATIONS, 16)

Credentials = Mapping[ScramMechanism, Credential]
Refusal = tuple[ErrorCode, str]
Kind = tuple[ScramMechanism, int, int]
"""What a credential looks like from outside: its mechanism, its iterations, and the size of its salt."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A request to forget a user's credential; `mechanism` is None where it is not one we know."""

    user: str
    mechanism: ScramMechanism | None


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A request to keep a credential, made from a password that the administrator's client has salted."""

    user: str
    mechanism: ScramMechanism | None
    iterations: int
    salt: bytes
    salted_password: bytes


class Users:
    """The state machine of users; `secret` serves decoys until the log has one."""

    def __init__(self, secret: bytes) -> None:
        self.by_name: dict[str, Credentials] = {}
        self._secret = secret
        self._secret_kept = False
        self._kinds: Counter[Kind] = Counter()
        self._preferred: Counter[Kind] = Counter()

    # -- asking ----------------------------------------------------------------------------------

    def scram(self, mechanism: ScramMechanism, user: str) -> Credential:
        """Return a user's credential, or a decoy that looks like one."""
        found = self.by_name.get(user, {}).get(mechanism)
        if found is not None:
            return found
        alike = Counter({kind: count for kind, count in self._kinds.items() if kind[0] is mechanism})
        return self._decoy((mechanism, *_most_common(alike)[1:]), user)

    def any_scram(self, user: str) -> tuple[ScramMechanism, Credential]:
        """Return the credential to check a plain password against, or a decoy."""
        credentials = self.by_name.get(user, {})
        for mechanism in _PREFERENCE:
            if mechanism in credentials:
                return mechanism, credentials[mechanism]
        # The work of checking a password tells nothing if it is what most users' passwords take.
        kind = _most_common(self._preferred)
        return kind[0], self._decoy(kind, user)

    def describe(self, names: Iterable[str] | None) -> list[tuple[str, Credentials | Refusal]]:
        """Return the credentials of the users asked for, or of all, as Kafka's DescribeUserScramCredentials."""
        counts = Counter(list(names or self.by_name))
        return [(name, self._describe(name, count)) for name, count in counts.items()]

    def _describe(self, name: str, count: int) -> Credentials | Refusal:
        if count > 1:
            problem = "Cannot describe SCRAM credentials for the same user twice in a single request: "
            return ErrorCode.duplicate_resource, problem + name
        if name not in self.by_name:
            problem = "Attempt to describe a user credential that does not exist: "
            return ErrorCode.resource_not_found, problem + name
        return self.by_name[name]

    def _decoy(self, kind: Kind, user: str) -> Credential:
        mechanism, iterations, salt_size = kind
        text = f"{mechanism.sasl_name}/{user}".encode()
        salt, stored_key, server_key = (
            hmac.digest(self._secret, part + text, mechanism.digest) for part in (b"salt", b"key", b"server")
        )
        return Credential(salt[:salt_size], stored_key, server_key, iterations)

    # -- changing --------------------------------------------------------------------------------

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> tuple[list[StateRecord], dict[str, Refusal | None]]:
        """Return the records of the changes that fit, and for every user named why its change does not.

        A user may be named once in a request, and if two changes name it, neither is made, as in Kafka.
        """
        refused: dict[str, Refusal | None] = {}
        changes: dict[str, Deletion | Upsertion] = {}
        wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
        for change in wanted:
            if refused.get(change.user) is not None:
                continue
            if changes.pop(change.user, None) is not None:
                problem = "A user credential cannot be altered twice in the same request"
                refused[change.user] = (ErrorCode.duplicate_resource, problem)
                continue
            refusal = refused[change.user] = self._refusal(change)
            if refusal is None:
                changes[change.user] = change
        records = [_record(user, self._after(change)) for user, change in changes.items()]
        if records and not self._secret_kept:
            value = {"version": 1, "secret": _text(self._secret)}
            records.append(StateRecord(_DECOY, json.dumps(value).encode()))
        return records, refused

    def remove(self, user: str) -> list[StateRecord]:
        """Return the record that removes a user altogether."""
        return [_record(user, {})]

    def _refusal(self, change: Deletion | Upsertion) -> Refusal | None:
        if not change.user:
            return ErrorCode.unacceptable_credential, "Username must not be empty"
        if change.mechanism is None:
            return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
        if isinstance(change, Deletion):
            if change.mechanism not in self.by_name.get(change.user, {}):
                problem = "Attempt to delete a user credential that does not exist"
                return ErrorCode.resource_not_found, problem
        elif change.iterations < MIN_ITERATIONS:
            return ErrorCode.unacceptable_credential, "Too few iterations"
        elif change.iterations > MAX_ITERATIONS:
            return ErrorCode.unacceptable_credential, "Too many iterations"
        elif not change.salted_password:
            return ErrorCode.unacceptable_credential, "The salted password must not be empty"
        return None

    def _after(self, change: Deletion | Upsertion) -> Credentials:
        assert change.mechanism is not None, "an unknown mechanism was refused"
        credentials = dict(self.by_name.get(change.user, {}))
        if isinstance(change, Deletion):
            del credentials[change.mechanism]
        else:
            credentials[change.mechanism] = credential_from_salted(
                change.mechanism, change.salted_password, change.salt, change.iterations
            )
        return credentials

    def replay(self, record: StateRecord) -> None:
        """Apply a record."""
        if record.key == _DECOY and record.value is not None:
            self._secret = _bytes(json.loads(record.value)["secret"])
            self._secret_kept = True
        elif record.key.startswith(_USER):
            name = record.key[len(_USER) :].decode()
            before = _kinds(self.by_name.pop(name, {}))
            self._kinds.subtract(before)
            self._preferred.subtract(before[:1])
            if record.value is not None:
                self.by_name[name] = _load(json.loads(record.value)["scram"])
                after = _kinds(self.by_name[name])
                self._kinds.update(after)
                self._preferred.update(after[:1])


def _kinds(credentials: Credentials) -> list[Kind]:
    """Return what a user's credentials look like, the one that PLAIN is checked against first."""
    return [
        (mechanism, credentials[mechanism].iterations, len(credentials[mechanism].salt))
        for mechanism in _PREFERENCE
        if mechanism in credentials
    ]


def _most_common(kinds: Counter[Kind]) -> Kind:
    found = kinds.most_common(1)
    return found[0][0] if found and found[0][1] else _FIRST


def _record(user: str, credentials: Credentials) -> StateRecord:
    if not credentials:
        return StateRecord(_USER + user.encode(), None)
    scram = {
        mechanism.sasl_name: {
            "salt": _text(credential.salt),
            "stored_key": _text(credential.stored_key),
            "server_key": _text(credential.server_key),
            "iterations": credential.iterations,
        }
        for mechanism, credential in credentials.items()
    }
    value = json.dumps({"version": 1, "scram": scram}, separators=(",", ":"))
    return StateRecord(_USER + user.encode(), value.encode())


def _load(scram: dict[str, dict[str, Any]]) -> Credentials:
    return {
        mechanism: Credential(
            _bytes(kept["salt"]), _bytes(kept["stored_key"]), _bytes(kept["server_key"]), kept["iterations"]
        )
        for mechanism in ScramMechanism
        if (kept := scram.get(mechanism.sasl_name)) is not None
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
