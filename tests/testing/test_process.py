from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.testing.kafka import answers
from headwater.testing.process import BrokerProcess, ProcessError, free_port, terminate

READY = "print('starting', flush=True); print('ready kafka=1', flush=True)"
STOPS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
WAITS = "import time; time.sleep(60)"


class Scripted(BrokerProcess):
    """A process that does what a script says, in place of a broker."""

    script = ""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


def scripted(tmp_path: Path, *lines: str, start_seconds: float = 10) -> Scripted:
    made = Scripted(tmp_path / "data", start_seconds=start_seconds)
    made.script = "\n".join(lines)
    return made


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_names_data_address_durability_and_settings(tmp_path: Path) -> None:
    made = BrokerProcess(tmp_path, port=7, durability="os", settings={"num.partitions": "4"}, options=("-v",))
    assert made.command == [
        str(Path(sys.executable).with_name("headwater")),
        "broker",
        f"--data={tmp_path}",
        "--kafka=127.0.0.1:7",
        "--amqp=none",
        "--durability=os",
        "-c",
        "num.partitions=4",
        "-v",
    ]
    assert made.bootstrap == "127.0.0.1:7"


def test_it_is_ready_inside_the_block_and_gone_after(tmp_path: Path) -> None:
    with scripted(tmp_path, STOPS, READY, WAITS) as made:
        assert made.ready_line == "ready kafka=1"
        assert made.ready_after > 0
        pid = made.pid
        assert alive(pid)
    assert not alive(pid)
    with pytest.raises(ProcessError, match="not running"):
        assert made.pid


def test_stopping_returns_the_status(tmp_path: Path) -> None:
    assert scripted(tmp_path, STOPS, READY, WAITS).start().stop() == 0
    assert scripted(tmp_path, STOPS, READY, WAITS).start().kill() == -signal.SIGKILL


def test_restarting_keeps_the_port_and_the_log(tmp_path: Path) -> None:
    made = scripted(tmp_path, STOPS, "import sys; print('said', file=sys.stderr)", READY, WAITS)
    port = made.port
    with made:
        first = made.pid
        made.restart()
        assert made.pid != first
        made.kill()
        made.restart()
        assert made.port == port
    assert made.errors() == "said\n" * 3


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    made = scripted(tmp_path, "import sys; print('the disk is full', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ProcessError, match=r"status 3:\n(?s:.*)the disk is full"):
        made.start()
    with pytest.raises(ProcessError, match="not running"):
        made.stop()


def test_a_process_that_is_never_ready_is_not_left_running(tmp_path: Path) -> None:
    made = scripted(
        tmp_path, f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))", WAITS
    )
    made.start_seconds = 1
    with pytest.raises(ProcessError, match="not ready within 1 s"):
        made.start()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_process_that_does_not_stop_is_killed_and_reported(tmp_path: Path) -> None:
    made = scripted(tmp_path, STUBBORN, READY, WAITS).start()
    pid = made.pid
    with pytest.raises(ProcessError, match="did not stop"):
        made.stop(seconds=0.3)
    assert not alive(pid)


def test_terminate_asks_before_it_kills() -> None:
    def started(*lines: str) -> subprocess.Popen[bytes]:
        script = "\n".join((*lines, "print(flush=True)", WAITS))
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        return process

    assert terminate(started(STOPS), seconds=10) == 0
    assert terminate(started(STUBBORN), seconds=0.3) == -signal.SIGKILL


def test_nobody_answers_where_nobody_listens_or_nobody_speaks_kafka() -> None:
    assert not answers("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not answers("127.0.0.1", silent.getsockname()[1], seconds=0.2)


def test_a_free_port_is_none_of_those_for_outgoing_connections() -> None:
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = {free_port() for _ in range(50)}
    assert len(ports) > 40
    assert all(1024 < port < max(first, 11_000) for port in ports)


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        offered = iter([taken.getsockname()[1], taken.getsockname()[1], free_port()])
        monkeypatch.setattr("headwater.testing.process.secrets.choice", lambda ports: next(offered))
        assert free_port() != taken.getsockname()[1]
