"""The page on alerts: its receiver verifies what is sent, and its webhook takes what is posted as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.process import BrokerProcess, free_port
from headwater.views import Change, ViewDefinition, open_store

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "alerts.md").read_text()
HEADWATER = str(Path(sys.executable).with_name("headwater"))


def block(language: str, holds: str) -> str:
    [found] = [
        code
        for code in re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
        if holds in code
    ]
    return str(found)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        httpx.get(url, trust_env=False)
    except httpx.TransportError:
        return False
    return True


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*command: str, **environment: str) -> subprocess.Popen[str]:
        output = (tmp_path / f"output{len(started)}").open("w")
        with output:
            process = subprocess.Popen(
                command, stdout=output, text=True, env=os.environ | environment, cwd=tmp_path
            )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        process.wait(20)


def test_the_receiver_takes_what_is_signed_and_leaves_out_repetitions(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "receiver.py").write_text(block("python", "# receiver.py"))
    url = f"http://127.0.0.1:{free_port()}/"
    run(sys.executable, "receiver.py", url.rstrip("/").rpartition(":")[2], FRAUD_SECRET="hush")
    until(lambda: answers(url))
    forged = httpx.post(url, content=b"{}", headers={"Headwater-Signature": "t=1,v1=a"}, trust_env=False)
    assert forged.status_code == 401
    (tmp_path / "shop.py").write_text(
        'from headwater import App\napp = App("shop")\napp.topic("orders", "card string")\n'
        f'@app.alert(to="{url}", secret_env="FRAUD_SECRET", group_by="card", throttle="1 second")\n'
        "def card_testing(orders):\n    return orders\n"
    )
    store_url = f"sqlite:///{tmp_path}/views.db"
    options = ("--allow-private-webhooks", f"--views={store_url}", f"--http=127.0.0.1:{free_port()}")
    run(HEADWATER, "serve", "shop.py", *options, FRAUD_SECRET="hush")
    with open_store(store_url) as store:
        store.define(ViewDefinition("!card_testing", ("id",)))
        store.commit("q", 0, "!card_testing", [Change(str(n), '{"card": "c1"}') for n in range(4)])
        until(lambda: store.outbox.quiet_until("!card_testing") is None and store.token("!card_testing") == 4)
        until(lambda: store.outbox.counts("!card_testing") == (0, 0))
    said = (tmp_path / "output0").read_text().splitlines()
    assert said == ["card_testing 1 {'card': 'c1'}", "card_testing 3 {'card': 'c1'}"]


def test_the_webhook_takes_what_the_page_posts(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "bank.py").write_text(block("python", "# bank.py"))
    posting = block("bash", "openssl dgst")
    said = re.search(re.escape(posting) + r"```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert said is not None
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("payments", 1)])["payments"].result()
        place = f"127.0.0.1:{free_port()}"
        options = (
            f"--broker=kafka://{broker.bootstrap}",
            f"--http={place}",
            f"--views=sqlite:///{tmp_path}/v.db",
        )
        server = run(HEADWATER, "serve", "bank.py", *options, BANK_SECRET="hush")
        until(lambda: answers(f"http://{place}/health"))
        for repeated in (False, True):
            found = subprocess.run(
                ["bash", "-euc", posting.replace("127.0.0.1:8080", place)],
                env=os.environ | {"BANK_SECRET": "hush"},
                capture_output=True,
                text=True,
                timeout=30,
            )
            assert json.loads(found.stdout) == json.loads(said[1]) | {"repeated": repeated}
        server.terminate()
        server.wait(20)
