"""The demo, run whole: a broker, a real client on either side, and nothing left behind."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess, free_port

pytestmark = pytest.mark.real

HEADWATER = str(Path(sys.executable).with_name("headwater"))
ROLES = ["broker", "consume", "produce"]
SUMMARY = re.compile(r"Produced ([\d,]+) records and consumed ([\d,]+) .* everything is stopped\.")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demo puts its temporary directory."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def _children(pid: int) -> dict[int, str]:
    """Return the command line of each child, by its pid."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        int(child): Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip() for child in listed
    }


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_until_gone(pids: list[int], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a child outlived the demo"
        time.sleep(0.05)


def _counts(output: str) -> tuple[int, int]:
    found = SUMMARY.search(output)
    assert found, output
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        # The terminal has to control the session for ^C to be a signal; setsid becomes the command itself.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
        )
        os.close(theirs)
        self.output = ""

    def read_until(self, pattern: str, seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.output):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.output}"
            if not self._read(0.1):
                pytest.fail(f"it ended without {pattern!r}:\n{self.output}")

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def finish(self, seconds: float = 20) -> int:
        """Read to the end, and return the exit status."""
        deadline = time.monotonic() + seconds
        while self._read(0.1):
            assert time.monotonic() < deadline, f"it did not end:\n{self.output}"
        return self.process.wait(5)

    def close(self) -> None:
        os.close(self._terminal)
        self.process.kill()
        self.process.wait()

    def _read(self, seconds: float) -> bool:
        """Read what is there; return False at the end."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.output += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal(temporary: Path) -> Iterator[Terminal]:
    """The demo on a terminal, with a broker of its own."""
    terminal = Terminal([HEADWATER, "demo", "--rate", "500"], {"TMPDIR": str(temporary)})
    yield terminal
    terminal.close()


def test_ctrl_c_leaves_nothing_behind(terminal: Terminal, temporary: Path) -> None:
    terminal.read_until(r"records/s(.|\n)*Ctrl-C ends it")
    children = _children(terminal.process.pid)
    assert sorted(word for c in children.values() for word in c.split() if word in ROLES) == sorted(ROLES)
    assert [path.name[:15] for path in temporary.iterdir()] == ["headwater-demo-"]

    terminal.type(b"\x03")
    assert terminal.finish() == 0
    produced, consumed = _counts(terminal.output)
    assert produced == consumed > 0
    assert [pid for pid in children if _is_running(pid)] == []
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in terminal.output


def test_a_killed_demo_takes_its_children_along(terminal: Terminal) -> None:
    terminal.read_until("Ctrl-C ends it")
    demo = terminal.process.pid
    children = list(_children(demo))
    assert len(children) == len(ROLES)
    os.kill(demo, signal.SIGKILL)
    _wait_until_gone(children)


def test_lines_for_a_pipe(temporary: Path) -> None:
    done = subprocess.run(
        [HEADWATER, "demo", "--seconds", "4.5", "--rate", "500"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert len(lines) == 4
    for text in lines:
        assert re.fullmatch(
            r" +\d+ s \| in .* records/s .* MB/s \| out .* \| p50 .* p99 .* \| total .* lag .*"
            r" \| broker \d+ MB \d+% CPU",
            text,
        )
    produced, consumed = _counts(last)
    assert produced == consumed
    assert 1000 < produced <= 2500
    assert list(temporary.iterdir()) == []


def test_a_running_broker_is_used_and_left_as_it_was(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        done = subprocess.run(
            [HEADWATER, "demo", "--seconds", "2", "--rate", "0", "--bootstrap", broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        produced, _ = _counts(done.stdout)
        assert produced > 10_000
        listed = subprocess.run(
            ["kcat", "-L", "-b", broker.bootstrap], capture_output=True, text=True, check=True
        )
        assert '"demo-' not in listed.stdout


def test_no_broker_is_one_line(temporary: Path) -> None:
    done = subprocess.run(
        [HEADWATER, "demo", "--bootstrap", f"127.0.0.1:{free_port()}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert done.returncode == 1
    assert re.fullmatch(r"Error: no broker at 127\.0\.0\.1:\d+ made the demo's topic: .*\n", done.stderr)
    assert list(temporary.iterdir()) == []
