"""`headwater produce` and `headwater consume` against real brokers."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .shell import HEADWATER, Shell

pytestmark = pytest.mark.real


def _values(rows: list[dict[str, object]]) -> list[object]:
    return [row["value"] for row in rows]


def test_lines(shell: Shell, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"ann:1\r\nbob:2:3\n\xff:\xfe\n:")
    words = ["produce", topic, "--key-separator", ":", "-H", "trace=17", "--file", str(source)]
    done = shell.run(*words, "--codec", "lz4")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        rf"Produced 4 records to {topic} in \d+\.\d\d s \([\d,]+ records/s\)\.\n", done.stderr
    )
    source.write_bytes(b"cid:4\n")
    assert shell.run(*words).stderr.startswith(f"Produced 1 record to {topic} in ")
    rows = {json.dumps(row["key"]): row for row in shell.lines("consume", topic)}
    assert rows['"ann"']["value"] == "1"
    assert rows['"ann"']["headers"] == {"trace": "17"}
    assert rows['"bob"']["value"] == "2:3"
    assert rows['{"base64": "/w=="}']["value"] == {"base64": "/g=="}
    assert rows['""']["value"] == ""


def test_json_there_and_back(shell: Shell, topic: str, name: str) -> None:
    timestamp = int(time.time() * 1000) - 60_000
    records: list[dict[str, object]] = [
        {"key": "k", "value": "ü\n", "headers": {"h": "v"}, "partition": 1, "timestamp": timestamp},
        {
            "key": None,
            "value": None,
            "headers": [["h", "1"], ["h", None]],
            "partition": 1,
            "timestamp": timestamp,
        },
        {"key": {"base64": "gA=="}, "value": "", "headers": {}, "partition": 1, "timestamp": timestamp},
    ]
    given = "".join(json.dumps(record) + "\n" for record in records)
    assert shell.run("produce", topic, "--json", given=given).returncode == 0
    rows = shell.lines("consume", topic, "--partition", "1")
    assert rows == [
        {"topic": topic, "partition": 1, "offset": i, **record} for i, record in enumerate(records)
    ]
    again = shell.run("consume", topic).stdout
    assert shell.run("produce", topic, "--json", given=again).returncode == 0
    assert [row["value"] for row in shell.lines("consume", topic, "--from", "3")] == ["ü\n", None, ""]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(shell: Shell, topic: str, acks: str) -> None:
    assert shell.run("produce", topic, "--acks", acks, given="a\nb\n").returncode == 0
    assert sorted(_values(shell.lines("consume", topic)), key=str) == ["a", "b"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(shell: Shell, topic: str, codec: str) -> None:
    given = "".join(f"value {i}\n" for i in range(1000))
    assert shell.run("produce", topic, "--codec", codec, given=given).returncode == 0
    assert len(shell.lines("consume", topic)) == 1000


def test_a_bad_line_is_named(shell: Shell, topic: str) -> None:
    given = '{"value": "1"}\n{"value": "2"}\n{"vaule": "3"}\n{"value": "4"}\n'
    line = shell.error("produce", topic, "--json", given=given)
    assert line.startswith("line 3: no record has a 'vaule'")
    assert line.endswith("; the 2 records before it were produced")
    assert sorted(_values(shell.lines("consume", topic)), key=str) == ["1", "2"]
    assert shell.run("produce", topic, "--json", "--key-separator", ":").returncode == 2


def test_what_the_broker_refuses(shell: Shell, topic: str) -> None:
    assert shell.error("produce", "bad/topic", given="a\n")
    assert shell.error("produce", topic, "--json", given='{"partition": 7}\n').startswith(f"{topic}: ")
    shell.run("topics", "alter", topic, "-c", "max.message.bytes=1000")
    assert "too large" in shell.error("produce", topic, given="x" * 100_000).lower()


def test_from_and_count(shell: Shell, topic: str) -> None:
    lines = [f'{{"value": "{i}", "partition": 0, "timestamp": "-{60 - 10 * i}m"}}\n' for i in range(5)]
    shell.run("produce", topic, "--json", given="".join(lines))
    for words, values in (
        (["--from", "earliest"], "01234"),
        (["--from", "latest"], ""),
        (["--from", "3"], "34"),
        (["--from", "99"], ""),
        (["--from", "-35m"], "34"),
        (["--from", "-1m"], ""),
        (["--count", "2"], "01"),
        (["--count", "0"], ""),
        (["--from", "1", "--count", "2"], "12"),
        (["--partition", "1"], ""),
    ):
        assert "".join(str(value) for value in _values(shell.lines("consume", topic, *words))) == values, (
            words
        )


def test_for_people(shell: Shell, topic: str) -> None:
    given = '{"key": "k", "value": "\\u001b[2Jü\\n", "headers": {"h": {"base64": "/w=="}}, "partition": 1}\n'
    shell.run("produce", topic, "--json", given=given)
    shown = shell.terminal("consume", topic, "--exit-at-end").strip()
    assert re.fullmatch(
        r"1:0 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} k \\x1b\[2Jü\\n h=\(base64\) /w==", shown
    ), shown
    assert json.loads(shell.terminal("consume", topic, "--count", "1", "--json"))["key"] == "k"


def test_follow_until_interrupted(shell: Shell, topic: str) -> None:
    follower = shell.start("consume", topic, "--from", "latest", "--follow")
    try:
        assert follower.stdout is not None
        deadline = time.monotonic() + 20
        lines: list[str] = []
        # It says nothing when it is at the end, so records come until it sees one.
        while not lines and time.monotonic() < deadline:
            shell.run("produce", topic, given="x\n")
            if _readable(follower, 0.2):
                lines.append(follower.stdout.readline())
        assert json.loads(lines[0])["value"] == "x"
        follower.send_signal(signal.SIGINT)
        _, stderr = follower.communicate(timeout=20)
        assert (follower.returncode, stderr) == (0, "")
    finally:
        if follower.poll() is None:
            follower.kill()
            follower.communicate()


def test_produce_until_interrupted(shell: Shell, topic: str) -> None:
    process = subprocess.Popen(
        [HEADWATER, "produce", topic],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert (process.returncode, stderr.startswith(b"Produced 2 records")) == (0, True), stderr
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert len(shell.lines("consume", topic)) == 2


def _readable(process: subprocess.Popen[str], seconds: float) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout.fileno()], [], [], seconds)[0])


def test_a_broken_pipe_is_quiet(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, given="".join(f"value {i:0100d}\n" for i in range(20_000)))
    command = f"{HEADWATER} consume {topic} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=shell.environment, timeout=60
    )
    first, status = done.stdout.splitlines()
    assert json.loads(first)["topic"] == topic
    assert (status, done.stderr) == ("1", "")


def test_errors(shell: Shell, topic: str) -> None:
    assert shell.error("consume", "no-such") == "there is no topic named no-such"
    assert shell.error("consume", topic, "--partition", "9") == f"{topic} has no partition 9: it has 2"
    assert shell.run("consume", topic, "--group", "g", "--from", "earliest").returncode == 2
