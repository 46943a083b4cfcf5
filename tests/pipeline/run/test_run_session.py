"""The settings of a session, and the Java below it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headwater.pipeline.session import SessionOptions, SparkError, cores, java_version, settings


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_java_of_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, said)))
    assert java_version() == version


def test_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "1.8.0_292")))
    with pytest.raises(SparkError, match="is Java 8: pipelines need Java 17 or newer"):
        java_version()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkError, match="no `java` on the PATH and no JAVA_HOME: pipelines need Java 17"):
        java_version()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match="does not run"):
        java_version()


@pytest.mark.parametrize(
    ("master", "tasks"),
    [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", len(os.sched_getaffinity(0)))],
)
def test_cores(master: str, tasks: int) -> None:
    assert cores(master) == tasks


def test_one_machine_listens_to_itself_alone_and_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    found = settings(SessionOptions("shop", tmp_path, "local[8]"))
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.sql.shuffle.partitions"] == "8"
    assert found["spark.ui.enabled"] == "false"
    for name in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert found[name].startswith(str(tmp_path))


def test_a_cluster_has_addresses_and_memory_of_its_own(tmp_path: Path) -> None:
    found = settings(SessionOptions("shop", tmp_path, "spark://master:7077", ui_port=4040))
    assert "spark.driver.host" not in found
    assert "spark.driver.memory" not in found
    assert (found["spark.ui.enabled"], found["spark.ui.port"]) == ("true", "4040")


def test_spark_starts_python_without_the_zip_files_of_pyspark(tmp_path: Path) -> None:
    command = settings(SessionOptions("shop", tmp_path, "local[2]"))["spark.pyspark.python"]
    home = Path(pyspark.__file__).parent
    zips = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    entries = [*zips, str(home / "jars" / "spark-core_2.13-4.3.0.jar"), *zips, "/an app", "/more*"]
    environment = {"PYTHONPATH": ":".join(entries), "HEADWATER_PYTHON": sys.executable}
    said = "import sys; print(sys.executable, sys.argv[1:], sys.path)"
    done = subprocess.run(
        [command, "-c", said, "a b", "*"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{sys.executable} ['a b', '*'] ['/an app', '/more*', ")
    assert not any(entry in done.stdout for entry in entries[:3])


def test_a_spark_of_ones_own_and_a_cluster_get_our_python_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = settings(SessionOptions("shop", tmp_path, "spark://master:7077"))
    assert cluster["spark.pyspark.python"] == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert settings(SessionOptions("shop", tmp_path, "local"))["spark.pyspark.python"] == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    assert settings(SessionOptions("shop", tmp_path, "local"))["spark.pyspark.python"] != sys.executable


@pytest.mark.parametrize(
    ("given", "environment", "modules"),
    [
        ({"spark.jars.packages": "a:b:1"}, {}, []),
        ({"spark.driver.extraClassPath": "/a.jar"}, {}, []),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, []),
        ({}, {}, ["pyspark.ml"]),
    ],
)
def test_extensions_are_looked_for_where_there_may_be_some(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    environment: dict[str, str],
    modules: list[str],
) -> None:
    name = "spark.sql.extensions.test.loadFromCp"
    for each in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.delitem(sys.modules, "pyspark.ml", raising=False)
    assert settings(SessionOptions("shop", tmp_path))[name] == "false"
    for each, value in environment.items():
        monkeypatch.setenv(each, value)
    for each in modules:
        monkeypatch.setitem(sys.modules, each, sys)
    assert name not in settings(SessionOptions("shop", tmp_path, settings=given))
