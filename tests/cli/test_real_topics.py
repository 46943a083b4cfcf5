"""`headwater topics` against real brokers."""

from __future__ import annotations

import uuid

import pytest

from .shell import Shell, eventually

pytestmark = pytest.mark.real


def test_life_of_a_topic(shell: Shell, name: str) -> None:
    created = shell.run("topics", "create", name, "--partitions", "2", "-c", "retention.ms=3600000")
    assert (created.returncode, created.stdout, created.stderr) == (0, "", f"Created {name}.\n")
    [described] = eventually(lambda: shell.lines("topics", "describe", name), bool)
    uuid.UUID(described["id"])
    assert described == {
        "topic": name,
        "id": described["id"],
        "internal": False,
        "partitions": [
            {"partition": i, "start": 0, "end": 0, "records": 0, "leader": 1, "replicas": [1], "isr": [1]}
            for i in range(2)
        ],
        # Kafka's controller notes the default of min.insync.replicas in the topic itself.
        "config": {"retention.ms": "3600000", **_noted(described["config"])},
    }

    shell.run(
        "topics", "alter", name, "--partitions", "3", "-c", "segment.ms=60000", "--unset", "retention.ms"
    )
    [described] = eventually(
        lambda: shell.lines("topics", "describe", name), lambda seen: len(seen[0]["partitions"]) == 3
    )
    assert described["config"] == {"segment.ms": "60000", **_noted(described["config"])}

    deleted = shell.run("topics", "delete", name, "--yes")
    assert (deleted.returncode, deleted.stderr) == (0, f"Deleted {name}.\n")
    eventually(
        lambda: [row["topic"] for row in shell.lines("topics", "list")], lambda names: name not in names
    )


def _noted(config: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in config.items() if name == "min.insync.replicas"}


def test_list_counts_records(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, given="a\nb\nc\n")
    rows = {row["topic"]: row for row in shell.lines("topics", "list")}
    assert rows[topic] == {"topic": topic, "partitions": 2, "records": 3, "internal": False}
    assert "__consumer_offsets" not in rows
    shell.run("groups", "reset", f"{topic}-group", "--topic", topic, "--to", "latest", "--execute")
    rows = {row["topic"]: row for row in shell.lines("topics", "list", "--internal")}
    assert rows["__consumer_offsets"]["internal"]


def test_tables_on_a_terminal(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, "--json", given='{"value": "a", "partition": 1}\n' * 1234)
    listed = shell.terminal("topics", "list")
    [row] = [line for line in listed.splitlines() if f" {topic} " in line]
    assert [cell.strip() for cell in row.strip("│ \r").split("│")] == [topic, "2", "1,234"]
    described = shell.terminal("topics", "describe", topic)
    assert "partition │ start │" in described.replace("┃", "│")
    assert shell.terminal("topics", "list", "--json").lstrip().startswith("{")


def test_delete_asks_on_a_terminal(shell: Shell, topic: str) -> None:
    refused = shell.run("topics", "delete", topic, given="n\n")
    assert refused.returncode == 1
    assert "Aborted!" in refused.stderr
    assert shell.run("topics", "describe", topic).returncode == 0


@pytest.mark.parametrize(
    "words",
    [["describe"], ["alter", "-c", "retention.ms=1"], ["delete", "--yes"], ["alter", "--partitions", "2"]],
)
def test_a_topic_that_is_not_there(shell: Shell, words: list[str]) -> None:
    verb, *options = words
    assert shell.error("topics", verb, "no-such-topic", *options) == "there is no topic named no-such-topic"


def test_what_the_broker_refuses_is_one_line(shell: Shell, topic: str) -> None:
    assert "already exists" in shell.error("topics", "create", topic)
    assert "no.such" in shell.error("topics", "create", f"{topic}-2", "-c", "no.such=1")
    assert shell.error("topics", "create", "bad/name")
    assert shell.error("topics", "alter", topic, "--partitions", "1")
    assert shell.error("topics", "alter", topic, "-c", "retention.ms=soon")


def test_alter_wants_something_to_alter(shell: Shell, topic: str) -> None:
    assert shell.run("topics", "alter", topic).returncode == 2
