"""`headwater users` on the data of a broker that is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.broker.access.scram import ScramMechanism, proves
from headwater.cli import main
from headwater.net.users_at_rest import UsersAtRest


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(main, ["users", *arguments], input=given)


def listed(data: Path) -> list[dict[str, object]]:
    ended = run("list", f"--data={data}")
    assert ended.exit_code == 0
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_user_is_added_and_changed_and_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("add", "alice", f"--data={data}", given="wonder\n").exit_code == 0
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert listed(data) == [{"user": "alice", "mechanisms": both, "iterations": 8192}]
    one = ("--mechanism=SCRAM-SHA-512", "--iterations=4096")
    assert run("add", "bob", f"--data={data}", *one, given="b=,\r\n").exit_code == 0
    assert listed(data)[1] == {"user": "bob", "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}
    with UsersAtRest(data) as stored:
        assert proves(*stored.users.any_scram("alice"), "wonder")
        assert proves(*stored.users.any_scram("bob"), "b=,")
    assert run("add", "alice", f"--data={data}", given="other\n").exit_code == 0
    with UsersAtRest(data) as stored:
        for mechanism in ScramMechanism:
            credential = stored.users.scram(mechanism, "alice")
            assert proves(mechanism, credential, "other")
            assert not proves(mechanism, credential, "wonder")
    assert run("remove", "alice", f"--data={data}").exit_code == 0
    assert [user["user"] for user in listed(data)] == ["bob"]


def test_the_password_is_nowhere_on_disk(tmp_path: Path) -> None:
    run("add", "alice", f"--data={tmp_path / 'data'}", given="extraordinary\n")
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"alice" in stored
    assert b"extraordinary" not in stored


@pytest.mark.parametrize(
    ("arguments", "given", "says"),
    [
        (("add", "alice"), "", "alice needs a password"),
        (("add", "alice"), "\n", "alice needs a password"),
        (("add", ""), "x\n", "a user needs a name"),
        (("add", "alice", "--iterations=4095"), "x\n", "4096<=x<=16384"),
        (("add", "alice", "--mechanism=PLAIN"), "x\n", "SCRAM-SHA-512"),
        (("remove", "nobody"), "", "is no directory"),
        (("list",), "", "is no directory"),
    ],
)
def test_what_does_not_work(tmp_path: Path, arguments: tuple[str, ...], given: str, says: str) -> None:
    ended = run(*arguments, f"--data={tmp_path / 'data'}", given=given)
    assert ended.exit_code in (1, 2)
    assert says in ended.output
    assert not (tmp_path / "data").exists()


def test_a_user_that_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    run("add", "alice", f"--data={tmp_path}", given="x\n")
    ended = run("remove", "bob", f"--data={tmp_path}")
    assert (ended.exit_code, ended.output) == (1, "Error: there is no user bob\n")


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    with UsersAtRest(tmp_path):
        ended = run("add", "alice", f"--data={tmp_path}", given="x\n")
    assert ended.exit_code == 1
    assert "is in use by another process" in ended.output
