"""A transaction that fails on its way: the log tells what became of it, and the caller gets that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.client.errors import BrokerError, Unreachable
from headwater.core.errors import ErrorCode
from headwater.events import OutcomeUnknown, Unavailable, WriterFenced
from headwater.wire.kafka.versions import Api

from .stores import Account, Place, deposited, versions

pytestmark = pytest.mark.real


class Fault:
    """Fails the next calls of an API, before or after the broker has done what they ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api: Api | None = None
        self.after = False
        self.times = 0
        self.error: Exception = Unreachable("the network is cut")
        real = Connection.call
        fault = self

        def call(self: Connection, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
            strikes = api_key == fault.api and fault.times > 0
            if strikes:
                fault.times -= 1
                if not fault.after:
                    raise fault.error
            answer = real(self, api_key, version, body)
            if strikes:
                raise fault.error
            return answer

        monkeypatch.setattr(Connection, "call", call)

    def set(self, api: Api, *, after: bool, times: int, error: Exception | None = None) -> None:
        self.api, self.after, self.times = api, after, times
        if error is not None:
            self.error = error


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(monkeypatch)


REFUSED = BrokerError(ErrorCode.unknown_server_error, "a transaction")
ENDED = BrokerError(ErrorCode.invalid_txn_state, "a transaction")
CASES = [
    (Api.PRODUCE, False),
    (Api.PRODUCE, True),
    (Api.END_TXN, False),
    (Api.END_TXN, True),
]


@pytest.mark.parametrize(("api", "after"), CASES)
@pytest.mark.parametrize("times", [1, 2])
def test_an_append_whose_answer_is_lost_is_stored_once(
    place: Place, fault: Fault, api: Api, after: bool, times: int
) -> None:
    with place.open() as store:
        store.append("ann", deposited(1))
        fault.set(api, after=after, times=times)
        appended = store.append("ann", deposited(2), expected=1)
        assert appended.version == 2
        accounts = store.aggregates(Account)
        assert accounts.execute("ann", Account.deposit, 4).version == 3
        assert accounts.state("ann").balance == 7
        assert [event.id for event in store.read("ann")][1] == appended.events[0].id


@pytest.mark.parametrize(("api", "after"), CASES)
def test_an_append_that_the_broker_refuses_is_looked_up_and_stored_once(
    place: Place, fault: Fault, api: Api, after: bool
) -> None:
    with place.open() as store:
        store.append("ann", deposited(1))
        fault.set(api, after=after, times=1, error=REFUSED)
        assert store.append("ann", deposited(2), expected=1).version == 2
        assert store.append("ann", deposited(4), expected=2).version == 3
        assert versions(store, "ann") == [1, 2, 3]


def test_a_failure_is_no_reason_to_take_the_partition_from_another_process(
    place: Place, fault: Fault
) -> None:
    with place.open() as old, place.open(directory=place.directory / "other") as new:
        old.append("ann", deposited(1))
        new.append("ann", deposited(2))
        fault.set(Api.PRODUCE, after=False, times=1, error=REFUSED)
        with pytest.raises(WriterFenced):
            old.append("ann", deposited(4))
        assert new.append("ann", deposited(8), expected=2).version == 3


def test_a_transaction_that_somebody_else_has_ended_is_taken_for_fencing(place: Place, fault: Fault) -> None:
    with place.open() as store:
        fault.set(Api.END_TXN, after=False, times=1, error=ENDED)
        # The transaction is open yet: what becomes of it is known when its new owner has ended it.
        future = store.submit("ann", deposited(1))
        with place.open(directory=place.directory / "other") as other:
            assert other.append("ann", deposited(2)).version == 1
        with pytest.raises(WriterFenced):
            future.result(20)
        store.claim()
        assert store.append("ann", deposited(4)).version == 2


def test_a_broker_that_stays_away_is_named_and_the_command_can_be_sent_again(
    place: Place, fault: Fault
) -> None:
    with place.open(deadline_seconds=0.3) as store:
        store.append("ann", deposited(1))
        fault.set(Api.END_TXN, after=True, times=1000)
        with pytest.raises(OutcomeUnknown, match="send again with the same command id"):
            store.append("ann", deposited(2), command_id="c1")
        fault.set(Api.INIT_PRODUCER_ID, after=False, times=1000)
        with pytest.raises(Unavailable, match="nothing was stored"):
            store.append("ann", deposited(2), command_id="c1")
        fault.times = 0
        assert store.append("ann", deposited(2), command_id="c1").version == 2
        assert versions(store, "ann") == [1, 2]
