"""A store under kill -9 and under two writers: what was said to be committed is there, whole.

Tests that each backend's test class inherits.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

from headwater.views import ViewDefinition, open_store

ROWS = 300

_WRITER = """
import sys, json
from headwater.views import Change, ViewDefinition, open_store
url, name, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(url)
store.define(ViewDefinition("sums", ("k",)))
for epoch in range(store.epoch(name) + 1, last):
    changes = [Change(f"{name}{n}", json.dumps({"epoch": epoch})) for n in range(int(sys.argv[4]))]
    assert store.commit(name, epoch, "sums", changes)
    print(epoch, flush=True)
"""


def writer(url: str, name: str, last: int = 1_000_000) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, url, name, str(last), str(ROWS)], stdout=subprocess.PIPE, text=True
    )


def check_whole(url: str, name: str, said: int) -> None:
    """Check that each epoch is there with all its rows and all its changes, or not at all."""
    with open_store(url) as store:
        epoch = store.epoch(name)
        assert epoch >= said
        rows = [json.loads(row.row)["epoch"] for row in store.rows("sums", limit=10_000)]
        assert rows == [epoch] * ROWS
        token = store.token("sums")
        assert token == (epoch + 1) * ROWS
        assert store.count("sums") == ROWS
        assert [c.token for c in store.changes("sums", token - ROWS)] == list(
            range(token - ROWS + 1, token + 1)
        )


class CrashContract:
    """A backend's module has a fixture `url`, the address of an empty store."""

    rounds = 4

    def test_killed_in_the_middle_of_commits(self, url: str) -> None:
        rng = random.Random(5)
        for _ in range(self.rounds):
            process = writer(url, "q")
            assert process.stdout is not None
            said = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
            rest = process.stdout.read().split("\n")
            process.stdout.close()
            process.wait()
            said = max([said, *(int(line) for line in rest[:-1])])
            check_whole(url, "q", said)

    def test_two_processes_write_at_once(self, url: str) -> None:
        processes = [writer(url, name, 15) for name in ("a", "b")]
        for process in processes:
            assert process.stdout is not None
            process.stdout.read()
            process.stdout.close()
            assert process.wait() == 0
        with open_store(url) as store:
            store.define(ViewDefinition("sums", ("k",)))
            assert (store.epoch("a"), store.epoch("b")) == (14, 14)
            assert store.count("sums") == 2 * ROWS
            assert store.token("sums") == 2 * ROWS * 15
            tokens = [change.token for change in store.changes("sums", 0, limit=10**6)]
            assert tokens == list(range(1, 2 * ROWS * 15 + 1))
