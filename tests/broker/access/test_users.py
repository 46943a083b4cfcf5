"""The users' state machine: what is kept, refused, described, and made up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.access.scram import ScramMechanism, credential_from_salted
from headwater.broker.access.users import Deletion, Upsertion, Users
from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode

SHA_256, SHA_512 = ScramMechanism
SECRET = b"s" * 32


def upsertion(
    user: str, mechanism: ScramMechanism | None = SHA_256, iterations: int = 4096, seed: bytes = b"seed"
) -> Upsertion:
    return Upsertion(user, mechanism, iterations, seed, hashlib.sha256(seed).digest())


def replayed(records: Iterable[StateRecord]) -> Users:
    users = Users(b"another secret")
    for record in records:
        users.replay(record)
    return users


def with_users(*changes: Upsertion) -> tuple[Users, list[StateRecord]]:
    users, log = Users(SECRET), []
    for change in changes:
        records, refused = users.alter((), [change])
        assert refused == {change.user: None}
        for record in records:
            users.replay(record)
        log += records
    return users, log


def test_a_credential_is_kept_and_no_password() -> None:
    users, log = with_users(upsertion("alice"))
    kept = users.scram(SHA_256, "alice")
    assert kept == credential_from_salted(SHA_256, hashlib.sha256(b"seed").digest(), b"seed", 4096)
    stored = b"".join(record.value or b"" for record in log)
    assert hashlib.sha256(b"seed").digest() not in stored
    assert users.any_scram("alice") == (SHA_256, kept)


def test_refusals_are_kafkas() -> None:
    users, _ = with_users(upsertion("alice"))
    records, refused = users.alter(
        [Deletion("nobody", SHA_256), Deletion("alice", SHA_512), Deletion("", SHA_256), Deletion("x", None)],
        [
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("mechanism", None),
            Upsertion("empty", SHA_256, 4096, b"", b""),
        ],
    )
    assert records == []
    assert {user: refusal and refusal[0] for user, refusal in refused.items()} == {
        "nobody": ErrorCode.resource_not_found,
        "alice": ErrorCode.resource_not_found,
        "": ErrorCode.unacceptable_credential,
        "x": ErrorCode.unsupported_sasl_mechanism,
        "few": ErrorCode.unacceptable_credential,
        "many": ErrorCode.unacceptable_credential,
        "mechanism": ErrorCode.unsupported_sasl_mechanism,
        "empty": ErrorCode.unacceptable_credential,
    }


def test_a_user_named_twice_is_not_changed() -> None:
    users, _ = with_users(upsertion("alice"))
    records, refused = users.alter(
        [Deletion("alice", SHA_256)], [upsertion("alice", SHA_512), upsertion("bob")]
    )
    assert refused["alice"] is not None
    assert refused["alice"][0] == ErrorCode.duplicate_resource
    assert [record.key for record in records if record.key.startswith(b"user/")] == [b"user/bob"]


def test_what_is_described() -> None:
    users, _ = with_users(upsertion("alice"), upsertion("alice", SHA_512, 8192), upsertion("bob"))
    described = dict(users.describe(None))
    assert sorted(described) == ["alice", "bob"]
    alice = described["alice"]
    assert not isinstance(alice, tuple)
    assert {mechanism: kept.iterations for mechanism, kept in alice.items()} == {SHA_256: 4096, SHA_512: 8192}
    assert dict(users.describe(["carol"]))["carol"] == (
        ErrorCode.resource_not_found,
        "Attempt to describe a user credential that does not exist: carol",
    )
    assert dict(users.describe(["bob", "bob"]))["bob"] == (
        ErrorCode.duplicate_resource,
        "Cannot describe SCRAM credentials for the same user twice in a single request: bob",
    )


def test_a_decoy_looks_like_the_others_and_stays_the_same_over_a_restart() -> None:
    users, log = with_users(
        upsertion("alice", iterations=8192, seed=b"0123456789"),
        upsertion("bob", iterations=8192, seed=b"abcdefghij"),
    )
    decoy = users.scram(SHA_256, "mallory")
    assert (decoy.iterations, len(decoy.salt), len(decoy.stored_key)) == (8192, 10, 32)
    assert replayed(log).scram(SHA_256, "mallory") == decoy
    assert users.scram(SHA_256, "mallet").salt != decoy.salt
    assert users.any_scram("mallory") == (SHA_256, decoy)
    assert "mallory" not in users.by_name


def test_a_plain_password_takes_the_same_work_for_a_user_that_does_not_exist() -> None:
    users, _ = with_users(
        *(upsertion(user, each, 8192, b"0" * 16) for user in ("alice", "bob") for each in ScramMechanism),
        upsertion("carol", SHA_256),
    )
    (known, kept), (unknown, decoy) = users.any_scram("alice"), users.any_scram("mallory")
    assert (known, kept.iterations) == (unknown, decoy.iterations) == (SHA_512, 8192)


def test_without_users_there_are_decoys_too() -> None:
    users = Users(SECRET)
    assert users.scram(SHA_256, "a") == users.scram(SHA_256, "a") != users.scram(SHA_256, "b")
    mechanism, kept = users.any_scram("a")
    assert len(kept.stored_key) == mechanism.bits // 8


NAMES = st.sampled_from(["a", "b", "ü/,="])
CHANGES = st.one_of(
    st.builds(Deletion, NAMES, st.sampled_from(ScramMechanism)),
    st.builds(
        upsertion,
        NAMES,
        st.sampled_from(ScramMechanism),
        st.sampled_from([4096, 9999]),
        st.binary(max_size=9),
    ),
    st.builds(lambda user: user, NAMES),
)


@given(st.lists(CHANGES, max_size=20))
def test_any_history_replays_to_the_same_users(changes: list[Deletion | Upsertion | str]) -> None:
    users = Users(SECRET)
    model: dict[str, set[ScramMechanism | None]] = {}
    log: list[StateRecord] = []
    for change in changes:
        if isinstance(change, str):
            records = users.remove(change)
            model.pop(change, None)
        elif isinstance(change, Deletion):
            records, refused = users.alter([change], ())
            known = change.mechanism in model.get(change.user, set())
            assert (refused[change.user] is None) == known
            model.get(change.user, set()).discard(change.mechanism)
        else:
            records, _ = users.alter((), [change])
            model.setdefault(change.user, set()).add(change.mechanism)
        for record in records:
            users.replay(record)
        log += records
    assert {name: set(kept) for name, kept in users.by_name.items()} == {n: m for n, m in model.items() if m}
    again = replayed(log)
    assert again.by_name == users.by_name
    if any(record.key == b"access/decoy" for record in log):
        assert again.scram(SHA_512, "nobody") == users.scram(SHA_512, "nobody")
