from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headwater.testing.jars import (
    CLIENTS_3_9,
    KAFKA_4_3,
    PERF_TEST,
    SPARK_CONNECTOR,
    JarSet,
    MissingProgramError,
    java_command,
)

MAVEN = """#!/bin/sh
echo call >> "$CALLS"
sleep 0.2
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) touch "${word#-DoutputDirectory=}/one.jar";; esac
done
exit ${STATUS:-0}
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven that notes its calls in a file and makes one jar."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mvn", "java"):
        (programs / name).write_text(MAVEN)
        (programs / name).chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return calls


def test_every_artifact_is_pinned_and_comes_alone() -> None:
    for jars in (KAFKA_4_3, CLIENTS_3_9, SPARK_CONNECTOR, PERF_TEST):
        project = ET.fromstring(jars.pom())
        space = {"m": "http://maven.apache.org/POM/4.0.0"}
        dependencies = project.findall("m:dependencies/m:dependency", space)
        assert len(dependencies) == len(set(jars.artifacts))
        for dependency in dependencies:
            assert dependency.findtext("m:version", namespaces=space)
            assert dependency.findtext("m:exclusions/m:exclusion/m:artifactId", namespaces=space) == "*"


def test_jars_are_fetched_once(maven: Path) -> None:
    jars = JarSet("some-1", ("a:b:1",))
    assert not jars.fetched
    directory = jars.fetch()
    assert (directory / "one.jar").exists()
    assert jars.fetch() == directory
    assert jars.classpath() == f"{directory}/*"
    assert maven.read_text() == "call\n"


def test_two_at_a_time_fetch_once(maven: Path) -> None:
    jars = JarSet("some-1", ("a:b:1",))
    threads = [threading.Thread(target=jars.fetch) for _each in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maven.read_text() == "call\n"


def test_another_list_of_artifacts_is_fetched_anew(maven: Path) -> None:
    JarSet("some-1", ("a:b:1",)).fetch()
    JarSet("some-1", ("a:b:1", "a:c:2")).fetch()
    assert JarSet("some-1", ("a:b:1", "a:c:2")).fetched
    assert not JarSet("some-1", ("a:b:1",)).fetched
    assert maven.read_text() == "call\ncall\n"


def test_a_failed_fetch_is_tried_again(maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = JarSet("some-1", ("a:b:1",))
    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(Exception, match="could not fetch some-1"):
        jars.fetch()
    monkeypatch.setenv("STATUS", "0")
    assert jars.fetch() == jars.directory
    assert maven.read_text() == "call\ncall\n"


def test_missing_programs_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgramError, match="maven and openjdk-17-jre-headless"):
        KAFKA_4_3.fetch()
    with pytest.raises(MissingProgramError, match="java not found"):
        java_command(KAFKA_4_3, "Main")


def test_a_command_runs_a_class_with_its_arguments(maven: Path) -> None:
    command = java_command(JarSet("some-1", ("a:b:1",)), "org.Main", "--now", heap="64m")
    assert command[:2] == ["java", "-Xmx64m"]
    assert command[-2:] == ["org.Main", "--now"]
