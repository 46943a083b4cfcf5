"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

KAFKA_VERSION = "4.3.0"


@dataclass(frozen=True)
class Machine:
    """What a reader must know to compare figures with those of another machine."""

    processor: str
    cores: int
    memory_gigabytes: float
    kernel: str
    python: str
    java: str
    kafka: str
    rabbitmq: str
    spark: str
    commit: str
    date: str

    def as_dict(self) -> dict[str, str | int | float]:
        """Return the facts by name, to be written as JSON."""
        return asdict(self)


def this_machine() -> Machine:
    """Describe this machine now."""
    return Machine(
        processor=processor_name(Path("/proc/cpuinfo").read_text()) or platform.machine(),
        cores=os.cpu_count() or 1,
        memory_gigabytes=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        java=java_version(_output("java", "-version")),
        kafka=KAFKA_VERSION,
        rabbitmq=upstream_version(
            _output("dpkg-query", "--show", "--showformat=${Version}", "rabbitmq-server")
        ),
        spark=version("pyspark"),
        commit=_output("git", "describe", "--always", "--dirty").strip(),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def processor_name(cpuinfo: str) -> str:
    """Return the processor's name in `/proc/cpuinfo`, or nothing where it is not said.

    >>> processor_name("processor\\t: 0\\nmodel name\\t: Some CPU @ 2GHz\\n")
    'Some CPU @ 2GHz'
    """
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else ""


def java_version(output: str) -> str:
    """Return the version that `java -version` prints.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    """
    found = re.search(r'version "([^"]+)"', output)
    return found[1] if found else "unknown"


def upstream_version(package: str) -> str:
    """Return the version of what Debian packaged, without what Debian counts itself.

    >>> upstream_version("3.10.8-1.1+deb12u1")
    '3.10.8'
    """
    return package.partition("-")[0] or "unknown"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=30)
    except OSError:
        return ""
    # Java prints its version to standard error.
    return done.stdout + done.stderr if not done.returncode else ""
