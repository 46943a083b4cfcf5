"""`headwater groups` against real brokers."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from clients.brokers import Broker
from clients.share import ACCEPT, Member, begin_at

from .shell import Shell, eventually

pytestmark = pytest.mark.real


@pytest.fixture
def group(shell: Shell, topic: str) -> str:
    """A group that has read 3 of 5 records in partition 0 of a topic, and nothing of partition 1."""
    lines = "".join(f'{{"value": "{i}", "partition": 0}}\n' for i in range(5))
    assert shell.run("produce", topic, "--json", given=lines).returncode == 0
    group = f"{topic}-group"
    consumed = shell.lines("consume", topic, "--group", group, "--count", "3")
    assert [record["value"] for record in consumed] == ["0", "1", "2"]
    return group


def _places(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("partition", *names)) for row in rows]


def test_describe(shell: Shell, topic: str, group: str) -> None:
    assert {"group": group, "state": "empty", "type": "classic"} in shell.lines("groups", "list")
    [described] = shell.lines("groups", "describe", group)
    assert (described["group"], described["state"], described["members"]) == (group, "empty", [])
    assert described["lag"] == 2
    assert _places(described["partitions"], "committed", "end", "lag") == [(0, 3, 5, 2)]
    shown = shell.terminal("groups", "describe", group)
    assert f"{group}  empty, 0 members, lag 2" in shown
    assert topic in shown


def test_the_group_goes_on_where_it_was(shell: Shell, topic: str, group: str) -> None:
    consumed = shell.lines("consume", topic, "--group", group)
    assert [record["value"] for record in consumed] == ["3", "4"]


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        ("earliest", [(0, 3, 0), (1, None, 0)]),
        ("latest", [(0, 3, 5), (1, None, 0)]),
        ("2", [(0, 3, 2), (1, None, 0)]),
        ("offset:99", [(0, 3, 5), (1, None, 0)]),
        ("-1h", [(0, 3, 0), (1, None, 0)]),
    ],
)
def test_reset(shell: Shell, topic: str, group: str, to: str, offsets: list[tuple[Any, ...]]) -> None:
    dry = shell.run("groups", "reset", group, "--topic", topic, "--to", to)
    assert dry.stderr == "This is what --execute would do; nothing is changed.\n"
    assert (
        _places(shell.lines("groups", "reset", group, "--topic", topic, "--to", to), "from", "to") == offsets
    )
    [described] = shell.lines("groups", "describe", group)
    assert _places(described["partitions"], "committed") == [(0, 3)]
    done = shell.run("groups", "reset", group, "--topic", topic, "--to", to, "--execute")
    assert (done.returncode, done.stderr) == (0, f"Reset {group}.\n")
    [described] = shell.lines("groups", "describe", group)
    assert _places(described["partitions"], "committed") == [(place[0], place[2]) for place in offsets]


def test_reset_to_a_time(shell: Shell, topic: str, name: str) -> None:
    lines = "".join(
        f'{{"value": "{i}", "partition": 0, "timestamp": "-{60 - i}m"}}\n' for i in (0, 10, 20, 30)
    )
    shell.run("produce", topic, "--json", given=lines)
    words = ["groups", "reset", name, "--topic", topic, "--partition", "0", "--execute"]
    assert _places(shell.lines(*words, "--to", "-45m"), "from", "to") == [(0, None, 2)]
    assert _places(shell.lines(*words, "--to", "-1m"), "from", "to") == [(0, 2, 4)]
    assert _places(shell.lines(*words, "--to", "-5h"), "from", "to") == [(0, 4, 0)]


def test_a_group_with_a_member(shell: Shell, topic: str, group: str) -> None:
    member = shell.start("consume", topic, "--group", group, "--follow")
    try:
        described = eventually(
            lambda: shell.lines("groups", "describe", group)[0],
            lambda seen: seen["state"] == "stable" and seen["lag"] == 0,
        )
        [row] = described["members"]
        assert row["client"] == "headwater-cli"
        assert sorted(row["partitions"]) == [f"{topic}-0", f"{topic}-1"]
        assert {place["member"] for place in described["partitions"]} == {row["member"]}
        assert row["member"][:20] in shell.terminal("groups", "describe", group).replace("\r\n", "")
        assert shell.error("groups", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
        assert group in shell.error("groups", "delete", group, "--yes")
        began = time.monotonic()
        member.send_signal(signal.SIGINT)
        stdout, stderr = member.communicate(timeout=20)
        assert time.monotonic() - began < 5
        assert (member.returncode, stderr, stdout.count("\n")) == (0, "", 2)
    finally:
        if member.poll() is None:
            member.kill()
            member.communicate()
    [described] = shell.lines("groups", "describe", group)
    assert (described["state"], described["lag"]) == ("empty", 0)


def test_a_share_group(shell: Shell, topic: str, group: str) -> None:
    consumers, group = group, f"{topic}-shared"
    host, _, port = shell.bootstrap.rpartition(":")
    member = Member(Broker("", host, int(port)), group, topic)
    try:
        begin_at(member.raw, group, topic)
        member.join()
        listed = {row["group"]: row for row in shell.lines("groups", "list")}
        assert listed[group] == {"group": group, "state": "stable", "type": "share"}
        assert listed[consumers]["type"] == "classic"
        assert member.take() == [(0, 4, 1)]
        member.acknowledge((0, 1, [ACCEPT]))
        member.acknowledge((2, 3, [ACCEPT]))
        [described] = shell.lines("groups", "describe", group)
        assert (described["group"], described["state"], described["type"]) == (group, "stable", "share")
        assert described["lag"] == 1
        assert _places(described["partitions"], "topic", "lag") == [(0, topic, 1), (1, topic, None)]
        # Kafka moves it with the next acknowledgement.
        assert described["partitions"][0]["start"] in (0, 2, 4)
        [told] = described["members"]
        assert told["member"] == member.id
        assert f"{topic}-0" in told["partitions"]
        shown = shell.terminal("groups", "describe", group)
        assert f"{group}  stable, 1 members, lag 1" in shown
        assert member.id in shown
        member.beat(-1)
    finally:
        member.raw.close()
    eventually(lambda: shell.lines("groups", "describe", group), lambda seen: seen[0]["state"] == "empty")
    assert shell.run("groups", "delete", group, "--yes").returncode == 0
    assert shell.error("groups", "describe", group) == f"there is no group named {group}"


def test_delete(shell: Shell, group: str) -> None:
    deleted = shell.run("groups", "delete", group, "--yes")
    assert (deleted.returncode, deleted.stderr) == (0, f"Deleted {group}.\n")
    assert group not in [row["group"] for row in shell.lines("groups", "list")]
    assert shell.error("groups", "describe", group) == f"there is no group named {group}"


def test_errors(shell: Shell, topic: str) -> None:
    assert shell.error("groups", "describe", "no-such") == "there is no group named no-such"
    assert "no-such" in shell.error("groups", "delete", "no-such", "--yes")
    reset = ["groups", "reset", "g", "--to", "earliest"]
    assert shell.error(*reset, "--topic", "no-such") == "there is no topic named no-such"
    assert (
        shell.error(*reset, "--topic", topic, "--partition", "9") == f"{topic} has no partition 9: it has 2"
    )
    assert shell.run("groups", "reset", "g", "--topic", topic, "--to", "soon").returncode == 2
