"""`headwater serve` as a process, with a real broker and a real browser."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.process import BrokerProcess, free_port
from headwater.views import Change, ViewDefinition, open_store

from .browser import Browser
from .serve_helpers import events

pytestmark = pytest.mark.real

APP = """
from headwater import App
app = App("shop")
app.topic("orders", "order_id string not null, amount double", key="order_id")
app.topic("refunds", "order_id string")
"""


class ServeProcess:
    def __init__(self, directory: Path, *options: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.store_url = f"sqlite:///{directory}/views.db"
        command = [str(Path(sys.executable).with_name("headwater")), "serve", *options]
        command += [f"--views={self.store_url}", f"--http={self.url.removeprefix('http://')}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        assert self.ready.startswith("ready"), self.ready
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    def stop(self) -> float:
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(20) == 0
        finally:
            self.close()
        return time.monotonic() - began

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 1), NewTopic("undeclared", 1)]).values():
            future.result()
        yield broker


@pytest.fixture
def process(tmp_path: Path, broker: BrokerProcess) -> Iterator[ServeProcess]:
    (tmp_path / "shop.py").write_text(APP)
    process = ServeProcess(tmp_path, str(tmp_path / "shop.py"), f"--broker=kafka://{broker.bootstrap}")
    yield process
    process.close()


def read(broker: BrokerProcess, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=10)
    consumer.close()
    return [(message.key(), message.value()) for message in found]


def test_posted_records_are_in_the_topic(process: ServeProcess, broker: BrokerProcess) -> None:
    posted = process.client.post(
        "/topics/orders",
        content=b'[{"order_id": "a", "amount": 1.10}, {"order_id":"b"}]',
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert posted.status_code == 200, posted.text
    places = posted.json()["records"]
    assert [place["offset"] - places[0]["offset"] for place in places] == [0, 1]
    one = process.client.post("/topics/orders?key=mine", json={"order_id": "c"})
    assert one.status_code == 200
    found = read(broker, "orders", 3)
    assert found == [
        (b"a", b'{"order_id": "a", "amount": 1.10}'),
        (b"b", b'{"order_id":"b"}'),
        (b"mine", b'{"order_id":"c"}'),
    ]


def test_a_misspelt_field_is_told(process: ServeProcess) -> None:
    lines = {"Content-Type": "application/x-ndjson"}
    posted = process.client.post("/topics/orders", json=[{"order_id": "d", "amuont": 1}, {"order_id": "e"}])
    assert (posted.status_code, posted.json()["unread"]) == (200, ["amuont"])
    posted = process.client.post(
        "/topics/orders", content=b'{"order_id": "f", "x\\ud83d": 1}\n', headers=lines
    )
    assert (posted.status_code, posted.json()["unread"]) == (200, ["x?"])
    assert "unread" not in process.client.post("/topics/orders", json={"order_id": "g"}).json()


def test_what_does_not_fit_is_refused(process: ServeProcess) -> None:
    def post(path: str, content: bytes, kind: str = "application/json") -> tuple[int, str]:
        answer = process.client.post(path, content=content, headers={"Content-Type": kind})
        return answer.status_code, answer.json()["error"]

    assert post("/topics/orders", b'{"order_id": "a", "amount": "much"}') == (
        400, "amount is text, and the schema says double",
    )  # fmt: skip
    assert post("/topics/orders", b'[{"order_id": "a"}, {}]') == (
        400, "record 1: order_id is missing, and the schema says NOT NULL",
    )  # fmt: skip
    assert post("/topics/undeclared", b"{}")[0] == 404
    status, error = post("/topics/refunds", b"{}")
    assert (status, "not there yet" in error) == (503, True)
    assert post("/topics/orders", b"{}", "text/plain")[0] == 415
    assert post("/topics/orders", b"[" + b" " * 9_000_000 + b"]")[0] == 413
    wide = json.dumps({"order_id": "x" * 2_000_000}).encode()
    assert post("/topics/orders", wide)[0] == 413


def test_a_broker_that_is_away_means_503_and_a_topic_that_is_not_there_404(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    process = ServeProcess(tmp_path, f"--broker=kafka://{broker.bootstrap}")
    try:
        assert process.client.post("/topics/nothing", json={}).status_code == 404
        assert process.client.post("/topics/undeclared", json={}).status_code == 200
    finally:
        process.stop()
    process = ServeProcess(tmp_path, f"--broker=kafka://127.0.0.1:{free_port()}")
    try:
        away = process.client.post("/topics/orders", json={})
        assert away.status_code == 503
        assert away.headers["retry-after"] == "1"
        assert process.client.get("/views").status_code == 200
        time.sleep(5.5)
        assert re.search(r"does not answer: .*Connection refused", process.client.get("/health").text)
    finally:
        assert process.stop() < 2


def test_it_ends_within_two_seconds_though_streams_are_open(process: ServeProcess) -> None:
    with open_store(process.store_url) as store:
        store.define(ViewDefinition("sales", ("k",)))
    started = threading.Barrier(4)

    def follow(path: str) -> None:
        with httpx.stream(
            "GET", process.url + path, headers={"Accept": "text/event-stream"}, timeout=30, trust_env=False
        ) as answer:
            stream = events(answer)
            next(stream)
            started.wait(10)
            list(stream)

    threads = [
        threading.Thread(target=follow, args=(path,)) for path in ("/live", "/live", "/views/sales/changes")
    ]
    for thread in threads:
        thread.start()
    started.wait(10)
    assert process.stop() < 2
    for thread in threads:
        thread.join()


def test_options_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("headwater"))
    for options, text in (
        (["--http=0.0.0.0:0"], "add --insecure-listen if that is what you want"),
        (["--broker=localhost:9092"], "write kafka://HOST:PORT"),
        (["--views=views.db"], "write sqlite:///PATH"),
        ([str(tmp_path / "missing.py")], "missing.py"),
    ):
        ended = subprocess.run(
            [command, "serve", *options], capture_output=True, text=True, timeout=30, cwd=tmp_path
        )
        assert ended.returncode != 0
        assert text in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_draws_itself_and_moves(
    process: ServeProcess, chromium: str, tmp_path: Path, *, dark: bool
) -> None:
    with open_store(process.store_url) as store:
        store.define(ViewDefinition("revenue", ("window", "country")))
        store.define(ViewDefinition("<b>odd</b>", ("k",)))

        def rows(value: int) -> list[Change]:
            return [
                Change(
                    f"{minute},{country}",
                    json.dumps(
                        {
                            "window": {"start": f"2026-01-01T10:{minute:02}:00.000Z", "end": ""},
                            "country": country,
                            "revenue": minute + value,
                        }
                    ),
                )
                for minute in range(20)
                for country in ("DE", "FR")
            ]

        store.commit("q", 0, "revenue", rows(0))
        store.commit("p", 0, "<b>odd</b>", [Change("x", '{"k": "<img src=x onerror=alert(1)>", "n": 5}')])
        browser = Browser(chromium, tmp_path / "profile")
        try:
            browser.open(process.url, dark=dark)
            browser.wait_for("document.querySelectorAll('.view .series').length === 2")
            browser.wait_for("document.querySelectorAll('.card').length === 2")
            assert browser.ask("document.documentElement.dataset.theme") == ("dark" if dark else "light")
            assert browser.ask("document.getElementById('app').textContent") == "shop"
            assert browser.ask("document.querySelectorAll('img, b b').length") == 0
            store.commit("q", 1, "revenue", rows(1000))
            browser.wait_for("document.querySelector('.legend').textContent.includes('1,019')")
            assert browser.problems == []
        finally:
            browser.close()


def test_keys_are_written_once_though_the_server_is_killed(tmp_path: Path, broker: BrokerProcess) -> None:
    """A client asks again until it is answered; the server is killed while it does, at different moments."""
    name = "killed"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result()
    rng = random.Random(7)
    answers: dict[int, str] = {}
    n = 0
    for _ in range(4):
        process = ServeProcess(tmp_path, f"--broker=kafka://{broker.bootstrap}")
        killer = threading.Timer(rng.uniform(0.01, 0.3), process.process.kill)
        begun = n
        try:
            while True:
                if n == begun + 2 and killer.ident is None:  # it has taken over, and works
                    killer.start()
                headers = {"Idempotency-Key": f"key-{n}"}
                answer = process.client.post(f"/topics/{name}", json={"n": n}, headers=headers)
                if answer.status_code == 200:
                    answers[n] = answer.text
                    n += 1
        except httpx.TransportError:
            pass
        finally:
            killer.cancel()
            process.close()
    process = ServeProcess(tmp_path, f"--broker=kafka://{broker.bootstrap}")
    try:
        # What was answered is answered alike; what was not is written now, or was.
        for number in [*answers, n]:
            headers = {"Idempotency-Key": f"key-{number}"}
            answer = process.client.post(f"/topics/{name}", json={"n": number}, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.text == answers.setdefault(number, answer.text)
    finally:
        process.stop()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "counter", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(json.loads(message.value() or b"")["n"])
    consumer.close()
    assert found == sorted(answers)
    assert len(found) >= 8
