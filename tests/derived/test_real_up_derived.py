"""`headwater up` keeps stores in step, and serves searches; without functions there is no Spark to wait for."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headwater.testing.process import free_port

from .running import made, ready, started

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


def test_a_change_is_found_over_http(app_file: Path, tmp_path: Path) -> None:
    made(tmp_path / "shop.db", 20).close()
    http, kafka = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    options = [f"--data={tmp_path}", f"--http={http}", f"--kafka={kafka}", "--amqp=none"]
    with started("up", app_file, *options) as process:
        ready(process)
        shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        shop.execute("UPDATE users SET email = 'a zebra' WHERE id = 7")
        shop.close()
        deadline = time.monotonic() + 60
        while (said := search(http, "zebra"))["total"] != 1:
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        assert said["hits"][0]["row"] == {"id": 7, "email": "a zebra", "age": 7}
        process.terminate()
        assert process.wait(30) == 0


def search(http: str, query: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://{http}/indexes/words?q={query}", timeout=10) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:  # 503 until the index is there
        return {"total": -1, "error": error.read()}
