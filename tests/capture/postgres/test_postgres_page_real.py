"""The examples about Postgres on the page about capture run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headwater.testing.postgres import RealPostgres
from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "capture.md").read_text()
SECTION = PAGE.partition("\n## Postgres\n")[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
HEADWATER = str(Path(sys.executable).with_name("headwater"))


@pytest.mark.parametrize("server", [15], indirect=True, ids=["on-postgres-15"])
def test_the_examples(server: RealPostgres, url: str, tmp_path: Path) -> None:
    mine = url.replace("headwater:secret", "capture:secret")
    python = printed = ""
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        psycopg.connect(url, autocommit=True) as admin,
    ):
        admin.execute("CREATE TABLE users (id int PRIMARY KEY)")
        try:
            for kind, code in EXAMPLES:
                code = code.replace("postgresql://capture:secret@127.0.0.1:5432/shop", mine)
                code = code.replace("127.0.0.1:9092", broker.bootstrap)
                match kind:
                    case "sql":
                        admin.execute(code.encode())
                        # The page's user is the application's, too.
                        admin.execute(f"GRANT ALL ON DATABASE {admin.info.dbname} TO capture".encode())
                        for table in re.findall(r"CREATE TABLE (\w+)", code):
                            admin.execute(f"ALTER TABLE {table} OWNER TO capture".encode())
                    case "sh":
                        printed += _run([sys.executable, "-c", python])
                        python = ""
                        for line in code.splitlines():
                            _run([HEADWATER, *line.split()[1:], f"--broker=kafka://{broker.bootstrap}"])
                    case "python":
                        python += "import json\n" + code
                    case "text":
                        printed += _run([sys.executable, "-c", python])
                        assert printed == code
                        return
            pytest.fail("the page prints nothing")
        finally:
            admin.execute("DROP OWNED BY capture CASCADE; DROP ROLE capture")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
