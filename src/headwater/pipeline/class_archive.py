"""An archive of the classes that Spark loads: with one, Spark starts in half the time.

Until a first batch is done, a JVM reads, verifies and links some fifteen thousand classes. `headwater warm-up` runs a
query once and has Java keep them (class data sharing); every session on this machine then maps them into memory. An
archive belongs to one Java and to the jars of one PySpark, and its name changes with either. A JVM that cannot use what
it is given, because it has other jars on its class path for instance, says nothing and does without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from headwater.core.cache import cache_directory, exclusive
from headwater.core.errors import HeadwaterError

__all__ = ["archive_options", "make_archive", "spark_archive", "spark_jars"]

_SECONDS = 600
_QUIETLY = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# A query with state over rows of Python: what nearly every pipeline loads.
_QUERY = """
from headwater import App
from headwater.testing import run_app

app = App("classes")
app.topic("orders", "id string, amount double", key="id")


@app.view(key="id")
def totals(orders):
    return orders.groupBy("id").agg({"amount": "sum"})


run_app(app, {"orders": [{"id": "1", "amount": 2.0}]})
"""


def spark_jars() -> Path:
    """Return the directory of the jars that PySpark brings."""
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise HeadwaterError("PySpark is missing: pip install 'headwater[spark]'")
    return Path(found.submodule_search_locations[0]) / "jars"


def spark_archive() -> Path:
    """Return where the archive for this Java and this PySpark is, or would be."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java") or ""
    made_for = [found, spark_jars()]
    for each in (found, spark_jars()):
        path = Path(each).resolve()
        if path.exists():
            made_for += [path, path.stat().st_mtime_ns]
    name = sha256(repr(made_for).encode()).hexdigest()[:12]
    return cache_directory() / "classes" / f"spark-{name}.jsa"


def archive_options() -> list[str]:
    """Return what to tell a JVM of Spark's: nothing, where there is no archive."""
    archive = spark_archive()
    return [*_QUIETLY, f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def make_archive() -> Path:
    """Make the archive unless it is there, and return the file."""
    archive = spark_archive()
    with exclusive(archive.with_suffix(".lock")), tempfile.TemporaryDirectory() as directory:
        if archive.is_file():
            return archive
        made = archive.with_suffix(".new")
        program = Path(directory) / "query.py"
        program.write_text(_QUERY)
        options = " ".join((*_QUIETLY, f"-XX:ArchiveClassesAtExit={made}"))
        # The archive is whole once the JVM is gone, which holds the pipes longer than Python does.
        done = subprocess.run(
            [sys.executable, str(program)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=directory,
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            timeout=_SECONDS,
        )
        if done.returncode or not made.is_file():
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise HeadwaterError(f"the query whose classes are kept did not run: {said}")
        made.replace(archive)
    return archive
