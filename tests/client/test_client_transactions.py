from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.client.cluster import EARLIEST, LATEST, Cluster
from headwater.client.connection import Connection
from headwater.client.errors import BrokerError, Unreachable
from headwater.client.fetch import begin_fetch, end_fetch
from headwater.client.transactions import Fenced, TransactionalWriter, max_batch_bytes
from headwater.core.urls import KafkaUrl
from headwater.record.batch import batches
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch, encode_batch
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess
from headwater.wire.kafka.versions import Api

pytestmark = pytest.mark.real

_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as ours:
            yield ours.bootstrap
    else:
        with RealKafka(properties=_SOON) as kafka:
            yield kafka.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    found = connect(bootstrap)
    yield found
    found.close()


def connect(bootstrap: str) -> Cluster:
    return Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "test")


def new_topic(cluster: Cluster, partitions: int = 2) -> str:
    name = f"out-{next(_numbers)}"
    cluster.ensure_topic(name, partitions)
    return name


def batch(*values: str) -> bytearray:
    return encode_batch([Record(place, 1, b"k", value.encode()) for place, value in enumerate(values)])


def settled(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return the ends once no transaction is open: Kafka writes its markers after it has answered."""
    every = dict.fromkeys(cluster.partitions(topic), LATEST)
    deadline = time.monotonic() + 15
    while True:
        ends = cluster.offsets(topic, every)
        if ends == cluster.offsets(topic, every, read_committed=False):
            return ends
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.02)


def values(cluster: Cluster, topic: str) -> dict[int, list[str]]:
    """Return the committed values of each partition."""
    found: dict[int, list[str]] = {}
    ends = settled(cluster, topic)
    at = cluster.offsets(topic, dict.fromkeys(ends, EARLIEST))
    for partition, end in ends.items():
        found[partition] = []
        while at[partition] < end:
            connection = cluster.connection(cluster.leader(topic, partition))
            begin_fetch(connection, {(topic, partition): at[partition]}, max_bytes=1 << 20)
            [fetched] = end_fetch(connection).values()
            for position, _ in committed_batches(fetched.records, fetched.aborted):
                records = decode_batch(fetched.records, position)
                found[partition] += [(record.value or b"").decode() for record in records]
            at[partition] = max(header.last_offset for _, header in batches(fetched.records)) + 1
    return found


def test_records_and_offsets_become_visible_together(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    group = f"group-{topic}"
    writer = TransactionalWriter(cluster, f"id-{topic}")
    writer.begin(topic, [0, 1])
    writer.produce(topic, {0: batch("a", "b"), 1: batch("c")})
    writer.produce(topic, {0: batch("d")})
    writer.commit_group(group, topic, {0: 7})
    assert cluster.offsets(topic, {0: LATEST, 1: LATEST}) == {0: 0, 1: 0}
    writer.commit()
    assert values(cluster, topic) == {0: ["a", "b", "d"], 1: ["c"]}
    assert cluster.group_offsets(group, topic, [0]) == {0: 7}


def test_an_aborted_transaction_leaves_nothing_to_see(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    group = f"group-{topic}"
    writer = TransactionalWriter(cluster, f"id-{topic}")
    writer.begin(topic, [0])
    writer.produce(topic, {0: batch("a")})
    writer.commit_group(group, topic, {0: 7})
    writer.abort()
    writer.begin(topic, [0])
    writer.produce(topic, {0: batch("b")})
    writer.commit()
    assert values(cluster, topic) == {0: ["b"], 1: []}
    assert cluster.group_offsets(group, topic, [0]) == {}


def test_a_second_writer_ends_the_transaction_of_the_first_and_shuts_it_out(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    group = f"group-{topic}"
    old = TransactionalWriter(cluster, f"id-{topic}")
    old.begin(topic, [0])
    old.produce(topic, {0: batch("old")})
    old.commit_group(group, topic, {0: 1})
    new = TransactionalWriter(cluster, f"id-{topic}")
    steps: list[Callable[[], object]] = [
        lambda: old.produce(topic, {0: batch("old")}),
        lambda: old.begin(topic, [1]),
        lambda: old.commit_group(group, topic, {0: 2}),
        old.commit,
        old.abort,
    ]
    for step in steps:
        with pytest.raises(Fenced, match="another producer"):
            step()
    assert cluster.group_offsets(group, topic, [0]) == {}
    new.begin(topic, [0])
    new.produce(topic, {0: batch("new")})
    new.commit()
    assert values(cluster, topic) == {0: ["new"], 1: []}


def test_a_transaction_that_takes_too_long_is_given_up(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    writer = TransactionalWriter(cluster, f"id-{topic}", timeout_ms=200)
    writer.begin(topic, [0])
    writer.produce(topic, {0: batch("a")})
    deadline = time.monotonic() + 15
    while cluster.offsets(topic, {0: LATEST}) == {0: 0}:  # the open transaction holds it back
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(Fenced, match="timed out"):
        writer.commit()
    assert values(cluster, topic)[0] == []


def test_a_batch_that_is_too_large_is_refused_by_name(cluster: Cluster) -> None:
    topic = f"small-{next(_numbers)}"
    cluster.ensure_topic(topic, 1, {"max.message.bytes": "1000"})
    assert max_batch_bytes(cluster, topic) == 1000
    assert max_batch_bytes(cluster, new_topic(cluster)) == 1048588
    writer = TransactionalWriter(cluster, f"id-{topic}")
    writer.begin(topic, [0])
    with pytest.raises(BrokerError, match=f"{topic}-0"):
        writer.produce(topic, {0: batch("x" * 2000)})


class Losses:
    """A network that loses the requests, or the answers, whose turn it is."""

    def __init__(self, lost: Mapping[tuple[Api, int], str]) -> None:
        self._lost = dict(lost)
        self._seen: dict[Api, int] = {}
        self._call = Connection.call

    def install(self, patch: pytest.MonkeyPatch) -> None:
        losses = self

        def call(self: Connection, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
            return losses.call(self, api_key, version, body)

        patch.setattr(Connection, "call", call)

    def call(self, connection: Connection, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        api = Api(api_key)
        turn = self._seen[api] = self._seen.get(api, 0) + 1
        what = self._lost.pop((api, turn), None)
        if what == "request":
            raise Unreachable("the request is lost")
        answer = self._call(connection, api_key, version, body)
        if what == "answer":
            raise Unreachable("the answer is lost")
        return answer


apis = st.sampled_from(
    [
        Api.INIT_PRODUCER_ID,
        Api.ADD_PARTITIONS_TO_TXN,
        Api.PRODUCE,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
    ]
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lost=st.dictionaries(
        st.tuples(apis, st.integers(1, 5)), st.sampled_from(["request", "answer"]), min_size=1, max_size=8
    ),
    ends=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_whatever_the_network_loses_each_batch_is_there_once(
    cluster: Cluster, lost: dict[tuple[Api, int], str], ends: list[bool]
) -> None:
    topic = new_topic(cluster, 1)
    group = f"group-{topic}"
    with pytest.MonkeyPatch.context() as patch:
        Losses(lost).install(patch)
        writer = TransactionalWriter(cluster, f"id-{topic}")
        for epoch, commits in enumerate(ends):
            writer.begin(topic, [0])
            writer.produce(topic, {0: batch(f"{epoch}-a", f"{epoch}-b")})
            writer.produce(topic, {0: batch(f"{epoch}-c")})
            writer.commit_group(group, topic, {0: epoch + 1})
            if commits:
                writer.commit()
            else:
                writer.abort()
    kept = [epoch for epoch, commits in enumerate(ends) if commits]
    assert values(cluster, topic)[0] == [f"{epoch}-{letter}" for epoch in kept for letter in "abc"]
    assert cluster.group_offsets(group, topic, [0]) == ({0: kept[-1] + 1} if kept else {})


def test_a_broker_that_is_killed_within_a_transaction_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, closing(connect(broker.bootstrap)) as cluster:
        topic = new_topic(cluster, 1)
        writer = TransactionalWriter(cluster, "survivor")

        def crash() -> None:
            broker.kill()
            broker.start()

        steps: list[Callable[[], object]] = [
            lambda: writer.begin(topic, [0]),
            lambda: writer.produce(topic, {0: batch("a")}),
            lambda: writer.produce(topic, {0: batch("b")}),
            lambda: writer.commit_group("survivors", topic, {0: 5}),
            writer.commit,
        ]
        for step in steps:
            step()
            crash()
        assert values(cluster, topic) == {0: ["a", "b"]}
        assert cluster.group_offsets("survivors", topic, [0]) == {0: 5}
