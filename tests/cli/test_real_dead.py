"""`headwater dead` on Headwater and on Kafka."""

from __future__ import annotations

import json

import pytest

from headwater.client import Cluster
from headwater.client.dead_letters import letter, send_letters
from headwater.core.urls import KafkaUrl

from .shell import Shell

pytestmark = pytest.mark.real


def test_dead_letters_are_listed_and_sent_again(shell: Shell, topic: str) -> None:
    app = f"app-{topic}"
    assert shell.lines("dead", "list", app) == []
    missing = shell.run("dead", "redrive", "shop.py", "--yes")
    assert missing.returncode == 0
    assert missing.stderr.startswith(
        "There is no topic shop.py.dead: nothing was malformed, or APP is not the"
    )
    cluster = Cluster(KafkaUrl.parse(f"kafka://{shell.bootstrap}"))
    first = letter("not JSON: what", topic, 0, 3, 1000, b"k", b"nonsense", [("h", b"x"), ("n", None)])
    second = letter("id: 5 is not true or false", topic, 1, 4, 1000, None, b"{}")
    send_letters(cluster, f"{app}.dead", [second, first, first])
    listed = shell.lines("dead", "list", app)
    assert [(row["partition"], row["offset"], row["value"]) for row in listed] == [
        (0, 3, "nonsense"),
        (1, 4, "{}"),
    ]
    assert listed[0]["reason"] == "not JSON: what"
    batch = letter("a batch does not open", topic, 0, 9, 0, None, None)
    send_letters(cluster, f"{app}.dead", [batch])
    done = shell.run("dead", "redrive", app, "--reason", "does not open", "--yes")
    assert (
        done.stderr == "1 letters are of batches that nobody can open, and stay.\nThere is nothing to send.\n"
    )
    cluster.close()
    assert len(shell.lines("dead", "list", f"{app}.dead", "--reason", "JSON")) == 1
    assert shell.lines("dead", "list", app, "--topic", "other") == []

    done = shell.run("dead", "redrive", app, "--reason", "JSON", "--yes")
    assert done.stderr == "Sent 1 records again.\n"
    assert [row["offset"] for row in shell.lines("dead", "list", app)] == [9, 4]
    [sent] = shell.lines("consume", topic)
    assert (sent["partition"], sent["key"], sent["value"]) == (0, "k", "nonsense")
    assert json.dumps(sent["headers"]).count("h") >= 1
    done = shell.run("dead", "redrive", app, "--reason", "JSON", "--yes")
    assert done.stderr == "There is nothing to send.\n"
