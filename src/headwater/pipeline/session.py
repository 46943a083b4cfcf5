"""The Spark session of `headwater run`: one driver for every query of an application.

Spark's defaults are those of a cluster and of large nightly jobs. What differs here is set in one table, each
setting with its reason; whoever runs an application may overrule any of them.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import accumulators
from pyspark.sql import SparkSession

from headwater.core.errors import HeadwaterError
from headwater.pipeline.class_archive import archive_options
from headwater.pipeline.stderr import jvm_stderr, muted

__all__ = ["GONE", "SessionOptions", "SparkError", "cores", "is_gone", "open_session", "session", "settings"]

GONE = (
    "Spark's Java process is gone: something has killed it, as the kernel does where memory runs out;"
    " start again, and everything goes on where it was"
)
OLDEST_JAVA = 17
_ENDS_SECONDS = 5.0
_GIGABYTE = 2**30
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_PYTHON = Path(__file__).with_name("python.sh")
_DAEMON = "headwater.pipeline.daemon"


class SparkError(HeadwaterError):
    """Spark, or the Java below it, that cannot start."""


@dataclass(frozen=True)
class SessionOptions:
    """What a session is made with."""

    name: str
    scratch: Path
    """For Spark's temporary files, and nothing else; it may be emptied whenever no session is open."""
    master: str = "local[*]"
    ui_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings, which overrule ours."""


def open_session(options: SessionOptions) -> SparkSession:
    """Start Spark, or raise `SparkError` with what it lacks."""
    java_version()
    options.scratch.mkdir(parents=True, exist_ok=True)
    # Workers are started by the JVM, with its environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _python_of(options.master)
    if is_local(options.master):
        os.environ["HEADWATER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(options.name).master(options.master)
    for name, value in (settings(options) | dict(options.settings)).items():
        builder = builder.config(name, value)
    # py4j tells of each connection that it closes, and of what a sink raises, which its query tells as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # It also logs, to nobody's logger, and PySpark prints, when the JVM is gone: `is_gone` finds out.
    logging.getLogger().addFilter(_is_not_of_py4j)
    accumulators.AccumulatorTCPServer.handle_error = _say_nothing  # type: ignore[assignment, method-assign]
    accumulators.AccumulatorUnixServer.handle_error = _say_nothing  # type: ignore[assignment, method-assign]
    # Every error that Spark raises once more, as JSON, with the stacks of both languages.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The traceback of what cannot be pickled, which is raised as well.
    pyspark.util.print_exec = lambda stream: None
    try:
        with jvm_stderr():
            spark = builder.getOrCreate()
    except Exception as error:
        raise SparkError(f"Spark did not start at {options.master}: {_last_line(error)}") from error
    if is_local(options.master):
        _leave_out_checksum_files(spark)
    return spark


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _say_nothing(*_: object) -> None:
    pass


def is_gone(spark: SparkSession) -> bool:
    """Tell whether an error that a call of Spark's raised is due to the end of its JVM."""
    java: Any = spark
    try:
        # Its connections are closed a moment before it has ended.
        java.sparkContext._gateway.proc.wait(_ENDS_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _leave_out_checksum_files(spark: SparkSession) -> None:
    """Let Hadoop write one file where it writes two, and starts a `chmod` for each, several times a batch."""
    java: Any = spark
    hadoop = java._jsparkSession.sessionState().newHadoopConf()
    # The instance that everything in this JVM shares; there is no setting for it.
    java._jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


@contextmanager
def session(options: SessionOptions) -> Iterator[SparkSession]:
    """Have Spark for a block, with a scratch directory that is empty before, and gone behind it."""
    shutil.rmtree(options.scratch, ignore_errors=True)  # a killed driver leaves its temporary files there
    spark = open_session(options)
    try:
        yield spark
    except (Py4JError, OSError) as error:
        if is_gone(spark):
            raise SparkError(GONE) from error
        raise
    finally:
        # A JVM that is gone, or that a signal has left with half a question, cannot be stopped; it ends with us.
        with muted(), suppress(Exception):
            spark.stop()  # and its JVM with it
        shutil.rmtree(options.scratch, ignore_errors=True)


def settings(options: SessionOptions) -> dict[str, str]:
    """Return what is set differently from Spark's defaults."""
    found = _streaming(options) | _python(options.master) | _driver(options)
    if not _may_find_extensions(options):
        # Asking every jar for extensions finds those of Spark ML, which take more than a second to begin.
        found["spark.sql.extensions.test.loadFromCp"] = "false"
    if is_local(options.master):
        found |= _one_machine(options)
    if options.ui_port is not None:
        found |= {"spark.ui.enabled": "true", "spark.ui.port": str(options.ui_port)}
    return found


def _streaming(options: SessionOptions) -> dict[str, str]:
    streaming = "spark.sql.streaming"
    checkpoints = "org.apache.spark.sql.execution.streaming.checkpointing"
    return {
        # One task for each core: more only add their fixed costs to every micro-batch. A query keeps the
        # number that it was first started with, in its checkpoint.
        "spark.sql.shuffle.partitions": str(max(2, cores(options.master))),
        # Streaming does not support it, and says so at each start.
        "spark.sql.adaptive.enabled": "false",
        # Every query has a pool of its own (`runner`), so that a busy one cannot starve the others.
        "spark.scheduler.mode": "FAIR",
        # Times are shown, and days begin, in UTC wherever the driver runs.
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        # State on disk and off the heap; a commit writes what changed, not all of it.
        f"{streaming}.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        f"{streaming}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows takes a look-up for each that is written: a third of what a window of many groups costs.
        f"{streaming}.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # All stores together, instead of 64 MB and more for each of perhaps a hundred.
        f"{streaming}.stateStore.rocksdb.boundedMemoryUsage": "true",
        f"{streaming}.stateStore.rocksdb.maxMemoryUsageMB": "512",
        # Resuming needs the last two; the rest is for going back by hand.
        f"{streaming}.minBatchesToRetain": "20",
        f"{streaming}.numRecentProgressUpdates": "30",
        # The other manager asks for symbolic links by starting a process (`readlink`), several a batch.
        f"{streaming}.checkpointFileManagerClass": f"{checkpoints}.FileSystemBasedCheckpointFileManager",
    }


def _python(master: str) -> dict[str, str]:
    python = _python_of(master)
    found = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }
    if find_spec(_DAEMON) is not None:
        # Imports what every worker needs once, before workers are forked off it.
        found["spark.python.daemon.module"] = _DAEMON
    return found


def _python_of(master: str) -> str:
    """Return what Spark is to start as Python: ours, by way of `python.sh` where Spark is PySpark's own, and here."""
    home = os.environ.get("SPARK_HOME")
    is_own = home is None or Path(home).resolve() == Path(pyspark.__file__).resolve().parent
    starts_sooner = is_local(master) and is_own and os.access(_PYTHON, os.X_OK)
    return str(_PYTHON) if starts_sooner else sys.executable


def _may_find_extensions(options: SessionOptions) -> bool:
    """Tell whether Spark's ML is in use, or jars are given that are not PySpark's own."""
    configured = any(name in os.environ for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH"))
    with_jars = any("jars" in name or "ClassPath" in name for name in options.settings)
    return configured or with_jars or "pyspark.ml" in sys.modules


def _driver(options: SessionOptions) -> dict[str, str]:
    scratch = options.scratch.resolve()
    java = [
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        f"-Dderby.system.home={scratch}",
        # Statistics for jps, in a file under /tmp that a killed JVM leaves there.
        "-XX:-UsePerfData",
    ]
    if is_local(options.master):
        java += archive_options()
    return {
        # Spark splits them at spaces, of which a path may have some.
        "spark.driver.extraJavaOptions": " ".join(
            f'"{option}"' if " " in option else option for option in java
        ),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }


def _one_machine(options: SessionOptions) -> dict[str, str]:
    scratch = options.scratch.resolve()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{_heap_gigabytes()}g",
        "spark.local.dir": str(scratch),
        "spark.headwater.state.cache": str(scratch),
    }


def is_local(master: str) -> bool:
    """Tell whether Spark runs inside this machine's one JVM."""
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """Return how many tasks run at once on a local master, or this machine's cores on another."""
    threads = re.fullmatch(r"local\[(\d+)(,.*)?\]", master)
    if threads:
        return int(threads[1])
    return 1 if master == "local" else len(os.sched_getaffinity(0))


def java_version() -> int:
    """Return the version of the Java that Spark will start, or raise `SparkError` when it will not do."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"pipelines need Java {OLDEST_JAVA} or newer, for example Debian's default-jre-headless"
    if java is None:
        raise SparkError(f"there is no `java` on the PATH and no JAVA_HOME: {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError as error:
        raise SparkError(f"{java} does not run ({error.strerror}): {advice}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SparkError(f"{java} does not say its version ({said.strip()[:200]}): {advice}")
    version = int(found[1])
    if version < OLDEST_JAVA:
        raise SparkError(f"{java} is Java {version}: {advice}, and JAVA_HOME naming it")
    return version


def _heap_gigabytes() -> int:
    """Return a quarter of the memory, at least 1 GB and at most 4: state is off the heap."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(4, memory // _GIGABYTE // 4))


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
