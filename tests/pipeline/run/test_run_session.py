"""The settings of a session, and the Java below it."""

from __future__ import annotations

import os
from pathlib import Path

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
