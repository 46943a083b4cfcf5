"""Transactions whose partitions take part by being written to, against Headwater and against Kafka 4.3.0."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.client.cluster import LATEST, Cluster
from headwater.client.transactions import Fenced, TransactionalWriter
from headwater.client.transactions_v2 import ImplicitWriter, open_writer
from headwater.wire.kafka.versions import Api

from .test_client_transactions import (  # noqa: F401  # fixtures
    Losses,
    batch,
    bootstrap,
    cluster,
    new_topic,
    values,
)

pytestmark = pytest.mark.real

MINUTE = 60_000


def write(writer: TransactionalWriter, topic: str, *texts: str) -> dict[int, int]:
    writer.begin(topic, [0])
    return writer.produce(topic, {0: batch(*texts)})


def test_records_become_visible_with_the_commit_and_never_after_an_abort(cluster: Cluster) -> None:  # noqa: F811
    topic = new_topic(cluster)
    writer = open_writer(cluster, f"v2-{topic}", timeout_ms=MINUTE)
    assert isinstance(writer, ImplicitWriter)
    epochs = [writer.producer_epoch]
    assert write(writer, topic, "a", "b") == {0: 0}
    assert write(writer, topic, "c") == {0: 2}
    assert cluster.offsets(topic, {0: LATEST}) == {0: 0}
    writer.commit()
    epochs.append(writer.producer_epoch)
    write(writer, topic, "dropped")
    writer.abort()
    epochs.append(writer.producer_epoch)
    write(writer, topic, "d")
    writer.commit()
    assert values(cluster, topic)[0] == ["a", "b", "c", "d"]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("within", [False, True], ids=["between", "within"])
def test_a_second_writer_shuts_the_first_one_out(cluster: Cluster, within: bool) -> None:  # noqa: F811
    topic = new_topic(cluster)
    old = open_writer(cluster, f"v2-{topic}", timeout_ms=MINUTE)
    write(old, topic, "first")
    old.commit()
    if within:
        write(old, topic, "dropped")
    new = open_writer(cluster, f"v2-{topic}", timeout_ms=MINUTE)
    with pytest.raises(Fenced):
        write(old, topic, "late")
    with pytest.raises(Fenced):
        old.commit()
    write(new, topic, "second")
    new.commit()
    assert values(cluster, topic)[0] == ["first", "second"]


apis = st.sampled_from([Api.INIT_PRODUCER_ID, Api.PRODUCE, Api.END_TXN])


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lost=st.dictionaries(
        st.tuples(apis, st.integers(1, 5)), st.sampled_from(["request", "answer"]), min_size=1, max_size=8
    ),
    ends=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_whatever_the_network_loses_each_batch_is_there_once(
    cluster: Cluster,  # noqa: F811
    lost: dict[tuple[Api, int], str],
    ends: list[bool],
) -> None:
    topic = new_topic(cluster, 1)
    with pytest.MonkeyPatch.context() as patch:
        Losses(lost).install(patch)
        writer = open_writer(cluster, f"v2-{topic}", timeout_ms=MINUTE)
        for number, commits in enumerate(ends):
            write(writer, topic, f"{number}-a", f"{number}-b")
            write(writer, topic, f"{number}-c")
            if commits:
                writer.commit()
            else:
                writer.abort()
    kept = [number for number, commits in enumerate(ends) if commits]
    assert values(cluster, topic)[0] == [f"{number}-{letter}" for number in kept for letter in "abc"]
