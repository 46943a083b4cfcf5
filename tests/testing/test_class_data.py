"""Archives of classes: made once, made anew when the jars change, and used by the JVMs that tests start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headwater.testing import class_data
from headwater.testing.class_data import make_kafka_archive
from headwater.testing.jars import (
    BRIEF,
    KAFKA_4_3,
    KAFKA_SCRIPTS,
    JarSet,
    java_command,
    shared_classes,
)


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JarSet:
    """A set that is there, in a cache of the test's own."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    monkeypatch.setattr("headwater.testing.jars.require", lambda *_: None)
    made = JarSet("some-1", ("a:b:1",))
    made.directory.mkdir(parents=True)
    (made.directory / ".fetched").write_text("a:b:1")
    return made


def test_an_archive_is_named_to_tools_where_there_is_one(jars: JarSet) -> None:
    option = f"-XX:SharedArchiveFile={shared_classes(jars)}"
    assert option not in java_command(jars, "Main")
    shared_classes(jars).touch()
    assert option in java_command(jars, "Main")
    assert option in java_command(jars, "Main", options=BRIEF)
    # A broker that is measured starts as Kafka's scripts start it.
    assert option not in java_command(jars, "Main", options=KAFKA_SCRIPTS)


def test_an_archive_is_made_anew_when_a_jar_is_newer(jars: JarSet) -> None:
    jar, archive = jars.directory / "one.jar", shared_classes(jars)
    jar.touch()
    assert not class_data._is_newer(archive, jars.directory)
    archive.touch()
    os.utime(jar, (1, 1))
    assert class_data._is_newer(archive, jars.directory)
    os.utime(jar, (2**32, 2**32))
    assert not class_data._is_newer(archive, jars.directory)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_tool_takes_its_classes_from_the_archive(java: str) -> None:
    made = make_kafka_archive()
    at = made.stat().st_mtime_ns
    assert make_kafka_archive().stat().st_mtime_ns == at
    tool = java_command(KAFKA_4_3, "org.apache.kafka.tools.TopicCommand", "--version")
    done = subprocess.run(
        [tool[0], "-Xlog:class+load", *tool[1:]], capture_output=True, text=True, timeout=60
    )
    [line] = [line for line in done.stdout.splitlines() if " org.apache.kafka.tools.TopicCommand " in line]
    assert line.endswith("source: shared objects file")
