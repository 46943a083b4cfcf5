"""`headwater serve` as a process that sends alerts and takes webhooks: it dies, and nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.serve.signatures import sign
from headwater.testing.process import BrokerProcess
from headwater.views import open_store

from .receiving import Hook, alert, until
from .test_serve_process import ServeProcess, read

pytestmark = pytest.mark.real

APP = """
from headwater import App
app = App("shop")
app.topic("payments", "id string not null, amount double", key="id")
app.webhook("bank", topic="payments", secret_env="BANK_SECRET")

@app.alert(to="{url}", secret_env="FRAUD_SECRET")
def fraud(payments):
    return payments

@app.alert(to="{url}", throttle="2 seconds")
def incident(payments):
    return payments
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("payments", 1)])["payments"].result()
        yield broker


@pytest.fixture
def start(
    tmp_path: Path, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ServeProcess]]:
    monkeypatch.setenv("BANK_SECRET", "one")
    monkeypatch.setenv("FRAUD_SECRET", "two")
    started: list[ServeProcess] = []

    def start(url: str) -> ServeProcess:
        (tmp_path / "shop.py").write_text(APP.format(url=url))
        options = (f"--broker=kafka://{broker.bootstrap}", "--allow-private-webhooks")
        started.append(ServeProcess(tmp_path, str(tmp_path / "shop.py"), *options))
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_a_server_that_dies_before_it_notes_a_message_sends_it_again_with_the_same_id(
    start: Callable[[str], ServeProcess],
    hook: Callable[..., Hook],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = hook(lambda _: (204, {}))
    monkeypatch.setenv("HEADWATER_KILL_AT", "alert.sent:1")
    doomed = start(receiver.url)
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        alert(store, "fraud", 1)
        assert doomed.process.wait(20) == -signal.SIGKILL
        assert store.outbox.counts("!fraud") == (1, 0)
        monkeypatch.delenv("HEADWATER_KILL_AT")
        start(receiver.url)
        until(lambda: store.outbox.counts("!fraud") == (0, 0), 20)
    assert len(receiver.requests) == 2
    assert len({headers["Idempotency-Key"] for headers, _, _ in receiver.requests}) == 1
    assert receiver.rows() == [1, 1]


def test_what_a_quiet_incident_holds_back_is_told_after_the_server_was_killed(
    start: Callable[[str], ServeProcess], hook: Callable[..., Hook], tmp_path: Path
) -> None:
    receiver = hook(lambda _: (204, {}))
    killed = start(receiver.url)
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        alert(store, "incident", 1, 2, 3)
        until(lambda: len(receiver.requests) == 1 and store.outbox.waiting("!incident") == [])
        killed.process.kill()
        killed.process.wait()
        start(receiver.url)
        until(lambda: store.outbox.counts("!incident") == (0, 0), 20)
    first, summary = (json.loads(body) for _, body, _ in receiver.requests)
    assert (first["row"], summary["row"], summary["held"]) == ({"n": 1}, {"n": 3}, 2)


def test_a_webhook_is_written_once_also_after_the_server_was_killed(
    start: Callable[[str], ServeProcess], broker: BrokerProcess
) -> None:
    body, last = b'{"id": "p1", "amount": 9.90}', b'{"id": "p2"}'

    def post(
        process: ServeProcess, body: bytes = body, *, secret: bytes = b"one", at: float | None = None
    ) -> tuple[int, object]:
        header = sign(secret, body, int(at or time.time()))
        answer = process.client.post("/hooks/bank", content=body, headers={"Headwater-Signature": header})
        return answer.status_code, answer.json()

    first = start("http://127.0.0.1:1/")
    assert post(first, secret=b"wrong")[0] == 401
    assert post(first, at=time.time() - 3600)[0] == 401
    answer = {"topic": "payments", "partition": 0, "offset": 0, "repeated": False}
    assert post(first) == (200, answer)
    assert post(first) == (200, answer | {"repeated": True})
    first.process.kill()
    first.process.wait()
    second = start("http://127.0.0.1:1/")
    assert post(second) == (200, answer | {"repeated": True})
    metrics = second.client.get("/metrics").text
    assert 'headwater_hook_messages_total{hook="bank",outcome="repeated"} 1' in metrics
    assert json.loads(second.client.get("/health").content)["status"] == "ok"
    assert post(second, last)[0] == 200
    assert read(broker, "payments", 2) == [(b"p1", body), (b"p2", last)]
