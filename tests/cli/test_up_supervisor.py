"""Processes that are kept running together."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.cli import supervisor as module
from headwater.cli.supervisor import Role, RoleEnded, Supervisor

READY = "import sys, time; print('ready', flush=True); "


class Log:
    """What roles said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, role: str, line: str) -> None:
        self.lines.append((role, line))

    def of(self, role: str) -> list[str]:
        return [line for name, line in self.lines if name == role]


@pytest.fixture
def log() -> Log:
    return Log()


def python(name: str, code: str, stop_seconds: float = 5.0) -> Role:
    return Role(name, [sys.executable, "-c", code], stop_seconds)


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_one_log_and_an_orderly_end(log: Log) -> None:
    supervisor = Supervisor(log)
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)));"
    code = polite + READY + "time.sleep(60)"
    await supervisor.start(python("broker", code))
    await supervisor.start(python("run", code), python("serve", code))
    await supervisor.stop()
    assert log.of("broker") == log.of("run") == log.of("serve") == ["ready", "bye"]
    assert log.lines[-1] == ("broker", "bye"), "the others stop before what they depend on"


async def test_a_role_has_a_group_of_its_own_in_the_session_of_its_supervisor(log: Log) -> None:
    supervisor = Supervisor(log)
    code = "import os; print(os.getpgid(0) == os.getpid(), os.getsid(0));" + READY + "time.sleep(60)"
    await supervisor.start(python("run", code))
    await supervisor.stop()
    assert log.of("run")[0] == f"True {os.getsid(0)}"


async def test_a_role_that_ends_is_started_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    supervisor = Supervisor(log)
    await supervisor.start(python("run", READY + "sys.exit(3)"))
    await until(lambda: log.of("run").count("ready") == 3)
    await supervisor.stop()
    assert log.of("run")[1] == "ended with status 3, and is started again in 0 s"


async def test_whoever_stops_a_role_as_it_ends_by_itself_is_heard(log: Log) -> None:
    process = module._Process(python("run", "print('ready')"), log)
    await process.start()
    assert process.process is not None
    await process.process.wait()
    assert process._output is not None
    await process._output
    output = asyncio.get_running_loop().create_future()
    process._output = output  # type: ignore[assignment]  # one that ends at a moment of our choice
    waiting = asyncio.create_task(process.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    output.set_result(None)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_role_that_never_was_ready_is_given_up(log: Log) -> None:
    supervisor = Supervisor(log)
    with pytest.raises(RoleEnded, match=r"^run ended with status 1: shop.py:3: no such topic$"):
        await supervisor.start(python("run", "import sys; print('shop.py:3: no such topic'); sys.exit(1)"))
    await supervisor.stop()


async def test_a_role_that_does_not_end_is_killed_with_what_it_started(log: Log) -> None:
    supervisor = Supervisor(log)
    deaf = (
        "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True); print('ready', flush=True);"
        "import time; time.sleep(60)"
    )
    await supervisor.start(python("run", deaf, stop_seconds=0.2))
    child = int(log.of("run")[0])
    assert is_running(child)
    await supervisor.stop()
    assert log.of("run")[-1] == "did not end within 0 s, and is killed"
    await until(lambda: not is_running(child))


LEAVES_A_SPEAKER = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c',"
    " 'import time; time.sleep(0.7); print(\"last\")'], start_new_session=True);" + READY
)


async def test_a_role_is_heard_out_where_that_takes_longer_than_its_end_may(log: Log) -> None:
    supervisor = Supervisor(log)
    await supervisor.start(python("broker", READY + "time.sleep(60)"))
    await supervisor.start(python("run", LEAVES_A_SPEAKER + "time.sleep(60)", stop_seconds=0.2))
    await supervisor.stop()
    assert log.of("run") == ["ready", "last"]
    assert all(each.process and each.process.returncode is not None for each in supervisor._processes)


async def test_a_role_that_has_ended_by_itself_is_heard_out(log: Log) -> None:
    supervisor = Supervisor(log)
    await supervisor.start(python("run", LEAVES_A_SPEAKER))
    process = supervisor._processes[0].process
    assert process is not None
    await process.wait()
    await supervisor.stop()
    assert log.of("run") == ["ready", "last"]


async def test_a_role_is_started_again_though_what_it_left_behind_still_has_its_output(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    supervisor = Supervisor(log)
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid);" + READY
    await supervisor.start(python("run", code))
    child = int(log.of("run")[0])
    await until(lambda: log.of("run").count("ready") == 2, seconds=5)
    assert not is_running(child)
    await supervisor.stop()


async def test_a_line_without_end_does_not_fill_memory(log: Log) -> None:
    supervisor = Supervisor(log)
    await supervisor.start(
        python("run", "print('x' * 300_000 + '\\nready', flush=True); import time; time.sleep(60)")
    )
    await supervisor.stop()
    assert max(map(len, log.of("run"))) <= 2 * 65536
    assert sum(map(len, log.of("run"))) == 300_005


async def test_roles_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio
from headwater.cli.supervisor import Role, Supervisor

async def main():
    supervisor = Supervisor(lambda role, line: print(line, flush=True))
    code = "import os, time; print(os.getpid(), flush=True); print('ready', flush=True); time.sleep(60)"
    await supervisor.start(Role("run", [{sys.executable!r}, "-c", code]))
    os_kill = __import__("os").kill
    os_kill(__import__("os").getpid(), 9)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    await process.wait()
    await until(lambda: not is_running(pid))
    assert os.getpid() != pid
