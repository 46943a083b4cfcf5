"""The section on MySQL of the page about capture: its statements and examples run, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.testing.mariadb import RealMariaDB
from headwater.testing.process import BrokerProcess
from needs import need

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "capture.md").read_text()
SECTION = PAGE.partition("## MySQL and MariaDB\n")[2].partition("\n## ")[0]


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_section_on_mysql(tmp_path: Path) -> None:
    need("mariadbd", "mariadb-server")
    settings = dict(re.findall(r"^(binlog\w+) += (\w+)$", SECTION, re.MULTILINE))
    assert settings == {"binlog_format": "ROW", "binlog_row_image": "FULL"}
    with RealMariaDB(settings=settings) as mariadb, BrokerProcess(tmp_path / "data") as broker:
        mariadb.run("CREATE DATABASE shop; GRANT ALL ON shop.* TO shop IDENTIFIED BY 'secret'")
        python = printed = ""
        ran = []
        for kind, code in re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE):
            ran.append(kind)
            code = code.replace("3306", str(mariadb.port)).replace("127.0.0.1:9092", broker.bootstrap)
            if kind == "sql":
                mariadb.run(code)
            elif kind == "python":
                python += code
            elif kind == "sh":
                printed += run([sys.executable, "-c", python], tmp_path)
                python = "".join(
                    line
                    for line in python.splitlines(keepends=True)
                    if line.startswith(("import ", "shop = "))
                )
                words = [*code.split(), "--broker", f"kafka://{broker.bootstrap}"]
                run([str(Path(sys.executable).with_name(words[0])), *words[1:]], tmp_path)
            elif kind == "text":
                assert printed + run([sys.executable, "-c", python], tmp_path) == code
        assert ran == ["ini", "sql", "python", "sh", "python", "sh", "python", "text"]
