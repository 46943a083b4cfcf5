"""The archive of Spark's classes: made by a command, named by what it was made for, and used by every session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.pipeline import class_archive
from headwater.pipeline.class_archive import archive_options, make_archive, spark_archive
from headwater.pipeline.session import SessionOptions, settings
from headwater.testing.class_data import spark_options
from headwater.testing.jars import BRIEF_SPARK

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which nothing is."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(archive: Path) -> str:
    """Put something where the archive would be, and return the option that names it."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.touch()
    return f"-XX:SharedArchiveFile={archive}"


def test_a_session_is_told_of_an_archive_where_there_is_one(cache: Path) -> None:
    options = SessionOptions("shop", cache / "scratch")
    assert archive_options() == []
    assert "SharedArchiveFile" not in settings(options)[JAVA_OPTIONS]
    assert spark_options() == BRIEF_SPARK
    named = made(spark_archive())
    assert settings(options)[JAVA_OPTIONS].endswith(named)
    assert spark_options().endswith(named)
    elsewhere = SessionOptions("shop", cache / "scratch", "spark://master:7077")
    assert named not in settings(elsewhere)[JAVA_OPTIONS]


def test_another_java_needs_an_archive_of_its_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    before = spark_archive()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    first = spark_archive()
    os.utime(java, (1, 1))  # an upgrade
    assert len({before, first, spark_archive()}) == 3


def test_no_java_is_said_by_the_session_and_not_here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert archive_options() == []
    done = CliRunner().invoke(main, ["warm-up"])
    assert done.exit_code == 1
    assert "pipelines need Java 17" in done.output


def test_a_query_that_does_not_run_leaves_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_QUERY", "raise SystemExit('no query today')")
    done = CliRunner().invoke(main, ["warm-up"])
    assert done.exit_code == 1
    assert "did not run: no query today" in done.output
    assert not spark_archive().exists()


@pytest.mark.real
@pytest.mark.timeout(300)
def test_spark_takes_its_classes_from_the_archive(java: str, tmp_path: Path) -> None:
    at = make_archive().stat().st_mtime_ns
    assert make_archive().stat().st_mtime_ns == at
    done = CliRunner().invoke(main, ["warm-up"])
    assert done.output.startswith(f"Spark's classes are kept in {spark_archive()} (")
    opens = (
        "from pathlib import Path; import sys; from headwater.pipeline.session import *;"
        "open_session(SessionOptions('shop', Path(sys.argv[1]))).stop()"
    )
    environment = os.environ | {"SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={tmp_path}/loads"}
    subprocess.run([sys.executable, "-c", opens, str(tmp_path)], env=environment, check=True, timeout=120)
    assert "SparkContext source: shared objects file (top)" in (tmp_path / "loads").read_text()
